"""One request's sampler: libllama's filters, then one draw. Knows logits and tokens, not why they were computed."""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.config import SamplingParams, resolve_seed
from paceline.errors import NoNumbers, RequestError
from paceline.llama.candidates import MOST_INFILL, Cut, Ids, drops_tokens
from paceline.llama.gumbel import gumbel
from paceline.llama.lib import Floats, c
from paceline.llama.model import Vocab

CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
Mask = npt.NDArray[np.bool_]
Chances = tuple[float, tuple[tuple[int, float], ...]]
"""A token's log-probability, and the likeliest tokens with theirs."""
BROKEN = "the model computes no numbers for this text (its logits are NaN or infinite)"
NOTHING_LEFT = "the sampling parameters and the logit bias leave no token"
NOTHING_LEFT_BY_GRAMMAR = "the grammar and the logit bias leave no token"


def tokens_of(tokens: Iterable[int]) -> Ids:
    return np.array(sorted(tokens), np.int64)


def largest_of(row: Floats) -> int:
    """The token with the largest logit. NaN counts as the largest, so a row that has one is refused here."""
    token = int(row.argmax())
    if not math.isfinite(row[token]):
        raise NoNumbers(BROKEN)
    return token


class Sampler:
    """Draws one token per emitted token, from the target's logits and the text alone."""

    def __init__(self, vocab: Vocab, params: SamplingParams, n_ctx: int, seed: int | None = None) -> None:
        self.params = params
        self.seed = resolve_seed(params.seed) if seed is None else seed
        self.biases = self._all_biases(vocab, params)
        self._chain: Any = None
        self._n_top: int | None = None
        self._chances: dict[int, Chances] = {}
        self._bounded: Floats = np.empty(0, np.float32)
        self._adapts = "adaptive_p" in params.samplers and params.adaptive_target >= 0 and not params.mirostat
        self._infills = "infill" in params.samplers and not params.mirostat
        self._n_recent = self._window(params, n_ctx)
        self._recent: deque[int] = deque(maxlen=self._n_recent)
        self._banned = tokens_of(token for token, bias in self.biases.items() if bias == float("-inf"))
        self._biased = tokens_of(token for token, bias in self.biases.items() if bias != float("-inf"))
        self.greedy = self._is_greedy()
        if not self.greedy:
            # 2^32 - 1 would ask libllama for a random seed
            self._chain = build_chain(vocab, params, self.biases, n_ctx, self.seed % 0xFFFFFFFF)
            self._cut = Cut(params)
            self._candidates = np.zeros(vocab.n_tokens, CANDIDATE)
            self._data = self._candidates.ctypes.data_as(ctypes.POINTER(c.llama_token_data))
            self._address = self._candidates.ctypes.data
            self._array = c.llama_token_data_array()

    @staticmethod
    def _all_biases(vocab: Vocab, params: SamplingParams) -> dict[int, float]:
        ignored = dict.fromkeys(vocab.eog, float("-inf")) if params.ignore_eos else {}
        wanted = {token: bias for token, bias in params.logit_bias.items() if token < vocab.n_tokens}
        return wanted | ignored

    @staticmethod
    def _window(params: SamplingParams, n_ctx: int) -> int:
        """How many of the last tokens the penalties look at."""
        sizes = [0]
        if params.repeat_penalty != 1 or params.presence_penalty or params.frequency_penalty:
            sizes.append(params.repeat_last_n)
        if params.dry_multiplier and params.dry_base >= 1:
            sizes.append(params.dry_penalty_last_n)
        return max(looking_back(size, n_ctx) for size in sizes)

    def _is_greedy(self) -> bool:
        """No filter can move or drop the largest logit, so it is the answer."""
        p = self.params
        movers = self._n_recent or len(self._biased) or p.mirostat or p.xtc_probability > 0 or p.typical_p < 1
        return p.temperature <= 0 and not (movers or self._infills or self._adapts)

    def watch(self, n_top: int | None) -> None:
        """From now on `chances` can be asked for what each token was drawn from."""
        self._n_top = n_top

    def chances(self, position: int) -> Chances:
        """Of the token drawn at `position`, after all filters. Once."""
        return self._chances.pop(position)

    def accept(self, tokens: Iterable[int]) -> None:
        """Tokens that now stand in the text: penalties remember them."""
        if not self._n_recent and not self._adapts:
            return
        for token in tokens:
            self._recent.append(token)
            c.llama_sampler_accept(self._chain, token)

    def prime(self, prompt: list[int]) -> None:
        """The prompt counts for penalties too, as far as they look back."""
        if self._n_recent:
            self.accept(prompt[-self._n_recent :])

    def sample(self, row: Floats, position: int, mask: Mask | None = None) -> int:
        """The token at `position` of the text, drawn from its logits; `mask` says which tokens may come at all."""
        largest = largest_of(row)
        if self.greedy and mask is None and largest not in self.biases:
            self._certain(position, largest)
            return largest
        row = self._allowed(row, mask)
        token = self._certain(position, int(row.argmax())) if self.greedy else self._draw(row, position)
        self.accept((token,))
        return token

    def force(self, row: Floats, position: int, token: int, mask: Mask | None = None) -> None:
        """This token came at `position`, whatever would have been drawn. Some filters learn from every draw."""
        if self.greedy:
            return
        if self.params.mirostat or self._adapts or self.params.xtc_probability > 0:
            largest_of(row)
            self._draw(self._allowed(row, mask), position)
        self.accept((token,))

    def _allowed(self, row: Floats, mask: Mask | None) -> Floats:
        """The row with what is forbidden at minus infinity; libllama aborts where nothing is left. In memory that is
        used again for the next: making it anew takes ten times as long as filling it."""
        if mask is None and not len(self._banned):
            return row
        if len(self._bounded) != len(row):
            self._bounded = np.empty_like(row)
        allowed = self._bounded
        if mask is None:
            np.copyto(allowed, row)
        else:
            allowed.fill(-np.inf)
            np.copyto(allowed, row, where=mask)
        allowed[self._banned] = -np.inf
        if allowed.max() == -np.inf:
            raise RequestError(NOTHING_LEFT if mask is None else NOTHING_LEFT_BY_GRAMMAR)
        return allowed

    def _draw(self, row: Floats, position: int) -> int:
        array = self._fill(row)
        c.llama_sampler_apply(self._chain, ctypes.byref(array))
        left = self._left(array)
        token = int(left["id"][self._choice(left, array.selected, position)])
        if self._infills and row[token] == -np.inf:  # the end, which is all that `infill` knows when it has no idea
            return self._certain(position, int(row.argmax()))
        if self._n_top is not None:
            self._chances[position] = chances_of(left, token, self._n_top)
        return token

    def _choice(self, left: npt.NDArray[Any], selected: int, position: int) -> int:
        """Which of those that are left; some filters choose by themselves."""
        if self.params.mirostat or self._adapts:
            return selected
        if len(left) == 1:
            return 0
        scores = left["logit"] + gumbel(self.seed, position, left["id"])
        best = int(scores.argmax())
        if not scores[best] > -np.inf:  # NaN too
            raise RequestError(NOTHING_LEFT)
        return best

    def _certain(self, position: int, token: int) -> int:
        if self._n_top is not None:
            self._chances[position] = (0.0, ((token, 0.0),)[: self._n_top])
        return token

    def _fill(self, row: Floats) -> Any:
        keep = self._cut(row, self._moved(), self._banned)
        n = len(row) if keep is None else len(keep)
        candidates = self._candidates[:n]
        candidates["id"] = np.arange(n) if keep is None else keep
        candidates["logit"] = row if keep is None else row[keep]
        array = self._array
        array.data = self._data
        array.size, array.selected, array.sorted = n, -1, False
        return array

    def _moved(self) -> Ids:
        if not self._recent:
            return self._biased
        return np.union1d(np.fromiter(self._recent, np.int64), self._biased)

    def _left(self, array: Any) -> npt.NDArray[Any]:
        """What the filters left; they may have moved the data elsewhere."""
        address = ctypes.cast(array.data, ctypes.c_void_p).value
        if address == self._address:
            return self._candidates[: array.size]
        buffer = (ctypes.c_char * (array.size * CANDIDATE.itemsize)).from_address(address or 0)
        return np.frombuffer(buffer, CANDIDATE)

    def close(self) -> None:
        if self._chain:
            c.llama_sampler_free(self._chain)
            self._chain = None

    def __del__(self) -> None:
        self.close()


def chances_of(left: npt.NDArray[Any], token: int, n_top: int) -> Chances:
    """The filters' last word as log-probabilities, without tokens that have no chance."""
    logits = left["logit"].astype(np.float64)
    logprobs = logits - logits.max()
    logprobs -= np.log(np.exp(logprobs).sum())
    best = np.lexsort((left["id"], -logprobs))[:n_top]
    top = tuple((int(left["id"][i]), float(logprobs[i])) for i in best if logprobs[i] > -np.inf)
    return float(logprobs[left["id"] == token][0]), top


def looking_back(n: int, n_ctx: int) -> int:
    """Tokens a penalty looks at: there are never more than the context holds, and libllama allots memory for each."""
    return n_ctx if n < 0 else min(n, n_ctx)


def build_chain(vocab: Vocab, params: SamplingParams, biases: dict[int, float], n_ctx: int, seed: int) -> Any:
    """libllama's filters in llama-server's order; the draw is not among them, except with mirostat and adaptive-p."""
    chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
    if biases:
        pairs = (c.llama_logit_bias * len(biases))(*biases.items())
        c.llama_sampler_chain_add(chain, c.llama_sampler_init_logit_bias(vocab.n_tokens, len(biases), pairs))
    if params.mirostat:
        c.llama_sampler_chain_add(chain, c.llama_sampler_init_temp(params.temperature))
        c.llama_sampler_chain_add(chain, mirostat(vocab, params, seed))
        return chain
    for name in params.samplers:
        for sampler in build_filter(name, vocab, params, n_ctx, seed):
            c.llama_sampler_chain_add(chain, sampler)
    if "adaptive_p" in params.samplers and params.adaptive_target >= 0:
        adaptive = c.llama_sampler_init_adaptive_p(params.adaptive_target, params.adaptive_decay, seed)
        c.llama_sampler_chain_add(chain, adaptive)
    return chain


def mirostat(vocab: Vocab, params: SamplingParams, seed: int) -> Any:
    if params.mirostat == 1:
        return c.llama_sampler_init_mirostat(vocab.n_tokens, seed, params.mirostat_tau, params.mirostat_eta, 100)
    return c.llama_sampler_init_mirostat_v2(seed, params.mirostat_tau, params.mirostat_eta)


def build_filter(name: str, vocab: Vocab, p: SamplingParams, n_ctx: int, seed: int) -> list[Any]:
    """One filter by llama-server's name; none where it would do nothing."""
    match name:
        case "penalties" if p.repeat_penalty != 1 or p.presence_penalty or p.frequency_penalty:
            last_n = looking_back(p.repeat_last_n, n_ctx)
            return [
                c.llama_sampler_init_penalties(
                    vocab.n_tokens, last_n, p.repeat_penalty, p.frequency_penalty, p.presence_penalty
                )
            ]
        case "dry" if p.dry_multiplier:
            return [build_dry(vocab, p, n_ctx)]
        case "top_k" if p.top_k > 0:
            return [c.llama_sampler_init_top_k(p.top_k)]
        case "min_p" if p.min_p > 0:
            return [c.llama_sampler_init_min_p(p.min_p, p.min_keep)]
        case "temperature":
            return [c.llama_sampler_init_temp_ext(p.temperature, p.dynatemp_range, p.dynatemp_exponent)]
        case "top_n_sigma" if drops_tokens(name, p):
            return [c.llama_sampler_init_top_n_sigma(p.top_n_sigma)]
        case "typ_p" if drops_tokens(name, p):
            return [c.llama_sampler_init_typical(p.typical_p, p.min_keep)]
        case "top_p" if drops_tokens(name, p):
            return [c.llama_sampler_init_top_p(p.top_p, p.min_keep)]
        case "xtc" if drops_tokens(name, p):
            return [c.llama_sampler_init_xtc(p.xtc_probability, p.xtc_threshold, p.min_keep, seed)]
        case "infill" if vocab.has_end:  # without an end to fall back to libllama aborts
            return [c.llama_sampler_init_top_k(MOST_INFILL), c.llama_sampler_init_infill(vocab.handle)]
    return []


def build_dry(vocab: Vocab, p: SamplingParams, n_ctx: int) -> Any:
    breakers = (ctypes.c_char_p * len(p.dry_sequence_breakers))(*(b.encode() for b in p.dry_sequence_breakers))
    last_n = looking_back(p.dry_penalty_last_n, n_ctx)
    return c.llama_sampler_init_dry(
        vocab.handle, p.dry_multiplier, p.dry_base, p.dry_allowed_length, last_n, breakers, len(breakers)
    )
