"""A query and a document as one text, as models that rank were trained to read them. Knows tokens, and one template."""

from __future__ import annotations

from paceline.llama.lib import c
from paceline.llama.model import Model


class Pairing:
    """By the model's own template for it, else with its marks between the two."""

    def __init__(self, model: Model) -> None:
        self._vocab = vocab = model.vocab
        template = c.llama_model_chat_template(model.handle, b"rerank")
        self._template: bytes | None = bytes(template) if template else None
        sep = int(c.llama_vocab_sep(vocab.handle))
        end = [vocab.eos if vocab.eos >= 0 else sep] if vocab.add_eos else []
        self._before = [vocab.bos] if vocab.add_bos else []
        self._between = end + ([sep] if c.llama_vocab_get_add_sep(vocab.handle) else [])
        self._after = end

    def tokens(self, query: bytes, document: bytes) -> list[int]:
        if self._template is not None:
            text = self._template.replace(b"{query}", query).replace(b"{document}", document)
            return self._vocab.tokenize_bytes(text, parse_special=True)
        plain = self._vocab.tokenize_bytes
        return [*self._before, *plain(query), *self._between, *plain(document), *self._after]
