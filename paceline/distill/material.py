"""What the target is given to begin with, as tokens: openings, questions, system prompts, people's prompts, the user's
own, and what its template writes between turns. Made once with libllama's tokenizer; everything after does without.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.config import ModelParams
from paceline.distill.openings import Openings
from paceline.distill.own import OwnRequest
from paceline.distill.people import People
from paceline.distill.turns import surroundings
from paceline.errors import ConfigError
from paceline.files import write_whole
from paceline.text.chat import ChatTemplate

if TYPE_CHECKING:
    from paceline.llama.model import Vocab

Tokens = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Without a chat template `chat` is empty, and the target writes documents only. `unseen_prompts` are measured by,
    never trained on. `requests` are the user's: a prompt each, and the answer that was recorded, or nothing."""

    n_vocab: int
    ends: Tokens
    document_start: Tokens
    chat: dict[str, Tokens] = field(default_factory=dict)
    openings: list[Tokens] = field(default_factory=list)
    questions: list[Tokens] = field(default_factory=list)
    passages: list[Tokens] = field(default_factory=list)
    tasks: list[Tokens] = field(default_factory=list)
    follow_ups: list[Tokens] = field(default_factory=list)
    systems: list[Tokens] = field(default_factory=list)
    documents: list[Tokens] = field(default_factory=list)
    prompts: list[list[Tokens]] = field(default_factory=list)
    unseen_prompts: list[list[Tokens]] = field(default_factory=list)
    requests: list[list[Tokens]] = field(default_factory=list)

    def save(self, path: Path) -> None:
        lists = {each.name: getattr(self, each.name) for each in fields(self)}
        write_whole(path, json.dumps(lists, separators=(",", ":")).encode())

    @classmethod
    def load(cls, path: Path) -> Material:
        try:
            return cls(**json.loads(path.read_bytes()))
        except (TypeError, ValueError):
            raise ConfigError(
                f"{path} was made by another version of paceline; remove it or choose another --work"
            ) from None


def prepare(model: str, *, n_each: int, seed: int, own: Sequence[OwnRequest] = ()) -> Material:
    """Needs libllama, for the tokenizer alone: no weights are loaded."""
    from paceline.llama.model import Model

    openings = Openings.load(seed)
    with Model(ModelParams(path=model, vocab_only=True)) as opened:
        vocab, source = opened.vocab, opened.chat_template
        start = [vocab.bos] if vocab.add_bos else [vocab.eos]

        def read(texts: Iterable[str]) -> list[Tokens]:
            return [tokens for text in texts if (tokens := vocab.tokenize(text, special=False, parse_special=False))]

        def conversations(n: int, *, held_out: bool = False) -> list[list[Tokens]]:
            return [read(messages) for messages in People.load(seed, held_out=held_out).draw(n)]

        template = ChatTemplate.of(source, vocab)
        chat = {}
        if source:
            around = asdict(surroundings(template))
            starts = ("before_user", "system")
            chat = {name: vocab.tokenize(text, special=name in starts) for name, text in around.items()}
        return Material(
            n_vocab=vocab.n_tokens,
            ends=sorted(vocab.eog),
            document_start=[token for token in start if token >= 0] or [0],
            chat=chat,
            **{name: read(openings.draw(name, n_each)) for name in openings.kinds},
            prompts=conversations(2 * n_each) if chat else [],
            unseen_prompts=conversations(n_each // 10, held_out=True) if chat else [],
            requests=[request_tokens(request, template, vocab) for request in own],
        )


def request_tokens(request: OwnRequest, template: ChatTemplate, vocab: Vocab) -> list[Tokens]:
    """The answer goes on where the prompt ends: by itself, some tokenizers would begin it with a space. How it ended
    is left off, the template says that."""
    text, bos = request.rendered(template), vocab.render(vocab.bos, special=True).decode() if vocab.add_bos else ""
    text = text.removeprefix(bos)  # a recorded prompt has it, and would get another
    said = request.answer.rstrip("\ufffd")  # a log's way to write half a character
    prompt, whole = vocab.tokenize(text), vocab.tokenize(text + said)
    answer = whole[len(prompt) :] if whole[: len(prompt)] == prompt else vocab.tokenize(said, special=False)
    while answer and answer[-1] in vocab.eog:
        answer.pop()
    return [prompt, answer]
