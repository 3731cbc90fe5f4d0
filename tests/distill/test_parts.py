"""What a run is made of: beginnings, templates, the user's prompts, scripts, the loss."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline.text.chat import CHATML, ChatTemplate
from tests.distill.files import libllama_logits, write_target

torch = pytest.importorskip("torch", reason="distilling needs torch: pip install 'paceline[distill]'")

from paceline.config import ModelParams  # noqa: E402
from paceline.distill import own  # noqa: E402
from paceline.distill.loss import Distance, gradient_of  # noqa: E402
from paceline.distill.material import Material, prepare  # noqa: E402
from paceline.distill.openings import GAP, Openings  # noqa: E402
from paceline.distill.people import People  # noqa: E402
from paceline.distill.reading import GgufFile, halves_first, neighbours_first  # noqa: E402
from paceline.distill.script import ScriptWriter, TextKind  # noqa: E402
from paceline.distill.target import Teacher  # noqa: E402
from paceline.distill.training import favourite, joined, pace  # noqa: E402
from paceline.distill.turns import surroundings  # noqa: E402
from paceline.distill.writing import Writer  # noqa: E402
from paceline.llama.model import Model, quantize  # noqa: E402

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_target(tmp_path_factory.mktemp("parts") / "target.gguf", tied=False, sharpness=3.0, n_embd=32)


@pytest.fixture(scope="module")
def material(target: str) -> Material:
    return prepare(target, n_each=60, seed=1)


def test_openings_are_many_and_whole() -> None:
    openings = Openings.load(seed=3)
    for kind, least in {"tasks": 3000, "questions": 3000, "passages": 2000, "documents": 2000, "openings": 250}.items():
        drawn = openings.draw(kind, 3000)
        assert len(set(drawn)) >= least
        assert not [text for text in drawn if GAP.search(text)]
        assert drawn == Openings.load(seed=3).draw(kind, 3000)


def test_people_ask_in_many_ways() -> None:
    drawn = People.load(3).draw(2000)
    assert drawn == People.load(3).draw(2000)
    assert len({tuple(messages) for messages in drawn}) > 1500
    assert all(1 <= len(messages) <= 3 and all(messages) for messages in drawn)
    assert not [messages for messages in drawn if re.search(r"\{(text|question|tongue)\}", messages[0])]
    assert sum(len(messages) > 1 for messages in drawn) > 300


def test_people_that_are_measured_by_are_not_trained_on() -> None:
    seen, unseen = People.load(1), People.load(1, held_out=True)
    for kind, entries in unseen.entries.items():
        assert entries and len(seen.entries[kind]) > 10 * len(entries)
        assert not [entry for entry in entries if entry in seen.entries[kind]]


def test_in_many_chats_people_ask_and_change_the_subject(material: Material) -> None:
    writer, rng = ScriptWriter(material, 4096), random.Random(4)
    known = {tuple(message) for messages in material.prompts for message in messages}
    people = [writer.people(rng) for _ in range(100)]
    assert all(len(asked) == 4 and {tuple(each) for each in asked} <= known for asked in people)
    assert max(len(messages) for messages in material.prompts) < 4
    begun = {tuple(messages[0]) for messages in material.prompts}
    before, after = material.chat["before_user"], material.chat["before_answer"]
    rows = [writer.chat(rng) for _ in range(300)]
    asked = [tuple(row[0].given[len(before) : -len(after)]) for row in rows if row[0].given[: len(before)] == before]
    assert 0.45 < sum(each in begun for each in asked) / len(asked) < 0.85
    short = ScriptWriter(material, 64)
    assert short.prompts and all(sum(map(len, messages)) <= 48 for messages in short.prompts)
    assert {tuple(m[0]) for m in ScriptWriter(material, 4096, greedy=True).prompts}.isdisjoint(begun)


def test_a_template_is_taken_apart() -> None:
    around = surroundings(ChatTemplate(CHATML, "", ""))
    assert around.before_user == "<|im_start|>user\n"
    assert around.before_answer == "<|im_end|>\n<|im_start|>assistant\n"
    assert around.between == "<|im_end|>\n<|im_start|>user\n"
    assert (around.system, around.after_system) == ("<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n")


def test_own_prompts_are_read_in_every_shape(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "Two."}]
    lines = [json.dumps({"messages": chat}), json.dumps({"turns": ["Three?"]}), json.dumps({"prompt": "Four"}), "Five?"]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    template = ChatTemplate(CHATML, "", "")
    requests = own.load(str(tmp_path / "log.jsonl"))
    rendered = [request.rendered(template) for request in requests]
    asked = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    assert rendered == [asked.format("One?"), asked.format("Three?"), "Four", asked.format("Five?")]
    assert [request.answer for request in requests] == ["Two.", "", "", ""]
    with pytest.raises(ConfigError, match="cannot read"):
        own.load(str(tmp_path / "none.jsonl"))


def test_own_prompts_are_half_of_the_text(target: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Is it raining?\n")
    with_own = prepare(target, n_each=20, seed=1, own=own.load(str(tmp_path / "mine.txt")))
    rng = random.Random(4)
    rows = [ScriptWriter(with_own, 64).row(rng) for _ in range(200)]
    n_own = sum(row[0].given == with_own.requests[0][0][-32:] for row in rows)
    assert 70 <= n_own <= 130


def test_a_chat_is_a_request_for_each_answer(tmp_path: Path) -> None:
    """Earlier answers stand in the prompts as they were given."""
    said = ["One?", "Two.", "Three?", "Four.", "Five?"]
    chat = [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(said)]
    (tmp_path / "log.jsonl").write_text(json.dumps({"messages": chat}))
    requests, template = own.load(str(tmp_path / "log.jsonl")), ChatTemplate(CHATML, "", "")
    assert [request.answer for request in requests] == ["Two.", "Four.", ""]
    assert [list(request.messages) for request in requests] == [chat[:1], chat[:3], chat]
    assert "assistant\nTwo.<|im_end|>\n<|im_start|>user\nThree?" in requests[1].rendered(template)


def test_recorded_answers_stand_as_given_and_count_fully(target: str) -> None:
    """In half of what the log is used for; the rest is answered anew, and so is everything that is measured by."""
    log = [own.OwnRequest(text=f"<|start|>user\n{i:02d}", answer=f"say {i:02d}<|end|>") for i in range(40)]
    material = prepare(target, n_each=20, seed=1, own=log)
    assert bytes(material.requests[7][1]) == b"say 07"
    rows = Writer(Teacher.read(target, device="cpu"), ScriptWriter(material, 64), 192, seed=3).round("x")
    n_recorded = n_own = 0
    for tokens, kinds in zip(rows.tokens.tolist(), rows.kinds, strict=True):
        for prompt, answer in material.requests[:38]:
            n = len(prompt)
            if tokens[:n] == prompt:
                n_own += 1
                assert not kinds[:n].any()
                if tokens[n : n + len(answer)] == answer:
                    n_recorded += 1
                    assert (kinds[n : n + len(answer)] == TextKind.ANSWER).all()
                    assert tokens[n + len(answer) :][: len(material.chat["between"])] == material.chat["between"]
    assert 0.25 < n_recorded / n_own < 0.75
    unseen = {tuple(prompt) for prompt, _ in material.requests[38:]}
    measured = [ScriptWriter(material, 64, greedy=True).own(random.Random(i))[0] for i in range(20)]
    assert {tuple(turn.given) for turn in measured} <= unseen
    assert not any(turn.n_recorded for turn in measured)


def test_all_of_a_long_answer_is_learned_from(target: str) -> None:
    """Rows are shorter than it; each takes some part of it."""
    answer = "".join(f"{i:03d} " for i in range(60))
    scripts = ScriptWriter(prepare(target, n_each=20, seed=1, own=[own.OwnRequest(text="Count", answer=answer)]), 64)
    turns = [scripts.own(random.Random(i))[0] for i in range(300)]
    learned = b" ".join(bytes(turn.given[-turn.n_recorded :][:64]) for turn in turns if turn.n_recorded)
    assert all(f"{i:03d}".encode() in learned for i in range(60))


def test_a_recorded_beginning_of_text_is_not_read_twice(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target.gguf", n_embd=32, add_bos=True)
    with Model(ModelParams(path=target, vocab_only=True)) as model:
        bos = model.vocab.bos
        spelled = model.vocab.render(bos, special=True).decode()
    log = [own.OwnRequest(text=f"{spelled}the cat", answer=" sat"), own.OwnRequest(text="the cat", answer=" sat")]
    first, second = prepare(target, n_each=20, seed=1, own=log).requests
    assert first == second
    assert first[0].count(bos) == 1


def test_written_text_follows_its_script(target: str, material: Material) -> None:
    """Given tokens stand as given, what is greedy is the target's favourite, and every turn ends as the template has
    it."""
    teacher = Teacher.read(target, device="cpu")
    scripts = ScriptWriter(material, 96, greedy=True)
    rows = Writer(teacher, scripts, 12, seed=5).round("x")
    script = scripts.script(12, "5 x")
    with torch.no_grad():
        favourites = teacher.logits(teacher(torch.from_numpy(rows.tokens)).hidden).argmax(-1).numpy()
    greedy = rows.kinds[:, 1:] == TextKind.GREEDY
    ends = np.isin(favourites[:, :-1], material.ends)
    agreed = favourites[:, :-1] == rows.tokens[:, 1:]
    assert greedy.sum() > 100
    assert np.mean((agreed | ends)[greedy]) >= 0.99
    for row in range(12):
        n = int(script.length[row, 0])
        assert (
            rows.tokens[row, :n].tolist() == script.given[script.start[row, 0] :][:n].tolist()[: len(rows.tokens[row])]
        )
        assert not rows.kinds[row, : min(n, 96)].any()


def test_all_kinds_of_text_are_written(target: str, material: Material) -> None:
    teacher = Teacher.read(target, device="cpu")
    rows = Writer(teacher, ScriptWriter(material, 128), 96, seed=2).round("y")
    counts = np.bincount(rows.kinds.ravel(), minlength=len(TextKind))
    assert (counts > 0).all()
    assert rows.tokens.max() < material.n_vocab
    whole = bytes(rows.tokens[rows.tokens < 256].astype(np.uint8))
    assert b"assistant" in whole


def test_without_a_template_documents_are_written(material: Material) -> None:
    plain = Material(n_vocab=material.n_vocab, ends=[256], document_start=[256], documents=[[65, 66]])
    turns = ScriptWriter(plain, 64).row(random.Random(1))
    assert {turn.kind for turn in turns} == {TextKind.DOCUMENT}


def test_the_gradient_is_that_of_the_loss() -> None:
    generator = torch.Generator().manual_seed(1)
    hidden, matrix, wanted, teacher = (
        torch.randn(*shape, generator=generator) for shape in ((9, 6), (20, 6), (9, 8), (20, 8))
    )
    weight, b = torch.rand(9, generator=generator), torch.tensor(0.4)
    hidden.requires_grad_()
    matrix.requires_grad_()
    own_chances, chances = (hidden @ matrix.T).log_softmax(-1), (wanted @ teacher.T).log_softmax(-1)
    kl = (chances.exp() * (chances - own_chances)).sum(-1)
    ce = -own_chances.gather(-1, chances.argmax(-1, keepdim=True))[:, 0]
    slow = ((kl + b * ce) * weight / weight.sum()).sum()
    slow.backward()
    by_hidden, by_matrix = hidden.grad.clone(), matrix.grad.clone()
    hidden.grad = matrix.grad = None
    quick = Distance.apply(hidden, matrix, wanted, teacher, weight, b)
    quick.backward()
    assert torch.allclose(quick, slow, atol=1e-5)
    assert torch.allclose(hidden.grad, by_hidden, atol=1e-5)
    assert torch.allclose(matrix.grad, by_matrix, atol=1e-5)
    _, _, agreed = gradient_of(chances, chances, weight, b)
    assert bool(agreed.all())


def test_pace_and_favourite_go_where_they_should() -> None:
    assert pace(0.0) < 0.1
    assert pace(0.03) > 0.95 > pace(0.5) > pace(1.0) > 0
    assert [round(favourite(share), 3) for share in (0, 0.5, 0.75, 1)] == [0.1, 0.1, 0.35, 0.6]
    assert [joined(256, 512), joined(160, 768), joined(3, 64), joined(7, 4096)] == [4, 2, 3, 1]


def test_rows_are_reordered_there_and_back() -> None:
    weight = np.arange(48, dtype=np.float32).reshape(12, 4)
    assert np.array_equal(neighbours_first(halves_first(weight, 3), 3), weight)
    assert not np.array_equal(halves_first(weight, 3), weight)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K_M", "Q6_K", "BF16"])
def test_quantised_targets_are_read(tmp_path: Path, kind: str) -> None:
    source = write_target(tmp_path / "whole.gguf", n_embd=256, n_layer=1, sharpness=3.0)
    quantize(source, str(tmp_path / "small.gguf"), kind, n_threads=1)
    teacher = Teacher.read(str(tmp_path / "small.gguf"), device="cpu")
    tokens = np.random.default_rng(5).integers(0, 256, 120).tolist()
    with torch.no_grad():
        ours = teacher.logits(teacher(torch.tensor([tokens])).hidden)[0].argmax(-1).numpy()
    assert np.mean(ours == libllama_logits(str(tmp_path / "small.gguf"), tokens).argmax(-1)) >= 0.9


def test_a_pure_quantisation_takes_tied_embeddings_along(tmp_path: Path) -> None:
    source = write_target(tmp_path / "whole.gguf", n_embd=256, n_layer=1)
    sizes = {}
    for pure in (False, True):
        quantize(source, str(tmp_path / "small.gguf"), "Q4_0", n_threads=1, pure=pure)
        sizes[pure] = (tmp_path / "small.gguf").stat().st_size
    assert sizes[True] < sizes[False]
    with Model(ModelParams(path=str(tmp_path / "small.gguf"))) as model:
        assert model.vocab.n_tokens == GgufFile(source).shape("token_embd.weight")[0]
