"""`draft-simple` with a model of another vocabulary: one that differs in a few tokens, or altogether.

Of the first kind, ids that mean something else to the target are never drafted, and read as what comes nearest. With
the second, text goes between the two: the draft's cache holds the history in its own tokens, and what it writes becomes
the target's (`segments.py`). How the target would divide a word that the draft may still go on with is not known, so
the last word of a draft is only as sure as that it ends there.

Bound: beside the draft model's, the tokens of each sequence's text in both vocabularies, and the words kept.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from paceline.drafters.base import Costs, Draft, DraftRequest, Resources
from paceline.drafters.draft_model import DraftModel
from paceline.drafters.guess import K_MAX, Ids, likeliest, noisiest
from paceline.drafters.segments import Rendering, Translation
from paceline.drafters.translation import Relation, dictionaries, reads, relation
from paceline.drafters.writing import place
from paceline.llama.candidates import at_least
from paceline.llama.lib import Floats
from paceline.llama.model import Vocab

log = logging.getLogger("paceline")

SLACK = 4  # tokens beyond twice its limit that a draft may take in the other vocabulary
FORGET = 0.98  # of what is known of the vocabularies' lengths stays at every draft
ENOUGH = 8.0  # tokens, of either vocabulary, that stand for what is not known yet
UNHEARD = -1


class NearModel(DraftModel):
    """Its vocabulary differs in a few tokens."""

    def meet(self, target: Vocab) -> None:
        self.reads = reads(target, self.context.model.vocab)
        n_common = min(self._n_target, self.context.n_vocab)
        self._not_drafted = np.array([token for token in self.reads if token < n_common], np.int64)

    def _extend(self, request: DraftRequest, draft: Draft, row: Floats, limit: int) -> list[int]:
        row[self._not_drafted] = -np.inf
        return super()._extend(request, draft, row, limit)

    def _known(self, tokens: list[int]) -> list[int]:
        return [self.reads.get(token, token) for token in tokens]


class TokenCosts(Costs):
    """What a token of the target costs, from what one of the draft's does and how many of them it takes."""

    def __init__(self, own: Costs) -> None:
        self._own = own
        self._n_own = self._n_target = ENOUGH

    @property
    def price(self) -> float:
        return self._own.price

    def predict(self, n: int) -> float:
        return self._own.predict(n) * self._n_own / self._n_target

    def observe(self, n: int, seconds: float) -> object:
        return self._own.observe(n, seconds)

    def learn(self, n_own: int, n_target: int) -> None:
        """A draft of so many of its own tokens became so many of the target's."""
        self._n_own = FORGET * self._n_own + n_own
        self._n_target = FORGET * self._n_target + n_target


class TranslatedModel(DraftModel):
    """Its vocabulary is another one."""

    def meet(self, target: Vocab) -> None:
        draft = self.context.model.vocab
        self._to_draft, self._to_target = dictionaries(target, draft, self.params.replace)
        self._measure = cache(lambda token: len(target.render(token, special=True)))
        self._texts = [Translation(self._to_draft) for _ in self._views]
        self._renderings = [Rendering(self._to_target, self._measure) for _ in self._views]
        self._n_read = [0 for _ in self._views]  # of each text, without what was ahead of it
        self._heard = np.full(self.context.n_vocab, UNHEARD, np.int32)
        self._writing = replace(self._writing, eog=target.eog)
        self.costs = self._token_costs = TokenCosts(self._step_costs)

    def _prompt(self, seq: int, tokens: Sequence[int]) -> tuple[Sequence[int], int]:
        self._n_read[seq] = self._texts[seq].n_common(tokens)
        text = self._follow(seq, tokens)
        return text.tokens, text.n_closed

    def _follow(self, seq: int, tokens: Sequence[int]) -> Translation:
        """The text, with what has come since it was read last."""
        text = self._texts[seq]
        text.rewind(min(self._n_read[seq], len(tokens)))
        text.read(tokens[len(text.source) :])
        self._n_read[seq] = len(tokens)
        return text

    def _text(self, request: DraftRequest) -> tuple[list[int], int]:
        text = self._follow(request.seq, request.tokens)
        n_stays = text.n_closed
        if request.ahead:
            text.read(request.ahead)
        self._renderings[request.seq] = Rendering(self._to_target, self._measure, text.pending)
        return text.tokens or [0], n_stays

    def _n_steps(self, limit: int) -> int:
        return min(2 * limit + SLACK, max(limit, self.window // 4))

    def _extend(self, request: DraftRequest, draft: Draft, row: Floats, limit: int) -> list[int]:
        """Words are taken as soon as they are whole. Where the draft ends, after one of them at least if nothing else
        ends it, the last counts as whole."""
        rendering = self._renderings[request.seq]
        token, sure = self._guess(request, rendering, row)
        goes_on = sure >= self._writing.least(request) and limit > 0
        if goes_on:
            rendering.add(token, sure)
            goes_on = rendering.fits and len(rendering.source) < self._n_steps(limit)
        while goes_on and len(draft) < rendering.n_closed:
            goes_on = self._writing.take(request, draft, *rendering.token(len(draft)), limit)
        if goes_on and (rendering.n_tokens < limit or not rendering.n_closed):
            return [token]
        rendering.end()
        self._finish(request, draft, rendering, limit)
        return []

    def _finish(self, request: DraftRequest, draft: Draft, rendering: Rendering, limit: int) -> None:
        self._token_costs.learn(len(rendering.source), len(rendering.tokens))
        least = self._writing.least(request)
        for index in range(len(draft), min(limit, len(rendering.tokens))):
            token, sure = rendering.token(index)
            if sure < least:
                break
            draft.tokens.append(token)
            draft.confidence.append(sure)

    def _guess(self, request: DraftRequest, rendering: Rendering, row: Floats) -> tuple[int, float]:
        """With the target's noise, if there is any: that of the token which the target would begin with."""
        if request.noise is None:
            return likeliest(row)
        k = min(request.noise.top_k, K_MAX) if request.noise.top_k > 0 else K_MAX
        ids = at_least(row, k)
        position = place(request, Draft()) + rendering.n_tokens
        logits = row[ids].astype(np.float64)
        best, sure = noisiest(self._targets(ids), logits, request.noise, position, self._writing.sharpness, k)
        return int(ids[best]), sure

    def _targets(self, ids: Ids) -> Ids:
        """With which of its tokens the target would begin each of these."""
        for token in ids[self._heard[ids] == UNHEARD].tolist():
            tokens = self._to_target.signs.get(token) or self._to_target.tokenize(self._to_target.spell(token))
            self._heard[token] = tokens[0] if tokens else 0
        return self._heard[ids]


def draft_model(resources: Resources) -> DraftModel:
    """`draft-simple`, made for how the vocabularies are related."""
    own = resources.computing(DraftModel.name)
    assert own.context
    name = Path(own.context.model.path).name
    found = relation(resources.target.vocab, own.context.model.vocab)
    if resources.settings.draft_model.replace and found is not Relation.FOREIGN:
        log.warning("--spec-replace has no effect: %s needs no translation", name)
    if found is Relation.SAME:
        return DraftModel.build(resources)
    if found is Relation.FOREIGN:
        log.info("%s has another vocabulary than the target: drafts are translated", name)
        return TranslatedModel.build(resources)
    near = NearModel.build(resources)
    log.info("%s has the target's vocabulary but for %d tokens, which it will not draft", name, len(near.reads))
    return near
