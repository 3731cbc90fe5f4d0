"""`suffix`: find the longest end of the history that occurred before, propose what mostly followed it.

Looked for in three texts: the request's own history, and two halves of the earlier outputs of all requests. The text
with the longest match speaks, own before newer before older; in earlier outputs a match needs 4 tokens of the output
itself, or to be as long as what is looked for. The places of that match vote on the next token, the winner's voters on
the one after, and so on; a vote that runs past the end of the history reads the draft itself, so a loop is drafted for
as long as wanted. Confidence: the winner's share of the votes times the chance that a match of this length goes on,
which grows by one with each token; its odds count once for every vote, and for less in the prompt and in earlier
outputs than in what was just written. The draft ends at n_max or where the product of its confidences falls under
p_min: short after short matches, long after long ones.

A suffix automaton in Python takes far too long over a prompt of 100,000 tokens. Instead the places of all runs of 1, 4
and 12 tokens are indexed. A binary search over these sizes finds the longest that occurred before; its newest 32
places are narrowed down token by token to the longest match. So matches count up to 32 tokens, and one between two
sizes, or longer than the last, is missed where 32 newer places share its shorter part. (More sizes draft the same on
recorded texts and take longer.)
Bound: three index entries for each token of a running request; n_shared tokens of outputs with two entries each,
the older half dropped when the newer half is full.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.config.drafters import SuffixParams
from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.drafters.chances import ELSEWHERE, IN_PROMPT, USUAL, Chances, seconded
from paceline.drafters.ngram_index import (
    NgramIndex,
    catch_up_all,
    hash_of,
    prefix_hashes,
    span,
)

OWN_SIZES = (1, 4, 12)
SHARED_SIZES = OWN_SIZES[1:]
LONGEST = 32  # tokens of a match that count
N_PLACES = 32
N_ENDED = 16  # outputs that wait to be indexed
END = -1


@dataclass(slots=True)
class Match:
    """The longest match in one text: its length, where it goes on, newest place first, and what to expect of it."""

    source: Sequence[int]
    length: int
    ends: list[int]
    chances: Chances = USUAL


class Tail:
    """The last tokens of what is to be continued, and the hash of each end of them where it is known or asked for."""

    def __init__(self, tokens: Sequence[int], ahead: Sequence[int], hashes: dict[int, int] | None = None) -> None:
        self.n_before = len(tokens) + len(ahead)
        self.tokens = span(tokens, ahead, max(self.n_before - LONGEST, 0), self.n_before)
        self._hashes = hashes or {}

    def hash(self, n: int) -> int:
        value = self._hashes.get(n)
        if value is None:
            value = self._hashes[n] = hash_of(self.tokens[-n:])
        return value


class Text:
    """A growing text and the places of its runs. The tokens themselves are the caller's."""

    def __init__(self, sizes: Sequence[int], tokens: Sequence[int]) -> None:
        prefix = prefix_hashes(tokens)
        self.indexes = [NgramIndex(n, tokens, prefix) for n in sizes]

    def catch_up(self, tokens: Sequence[int]) -> None:
        catch_up_all(self.indexes, tokens)

    @property
    def hashes(self) -> dict[int, int]:
        """Of the last n tokens, for each size."""
        return {index.n: index.hash for index in self.indexes if index.n <= index.n_tokens}

    def find(self, tokens: list[int], tail: Tail, before: int) -> Match:
        """The longest match that ends before this place."""
        low, high = 0, sum(index.n <= len(tail.tokens) for index in self.indexes)
        while low < high:
            middle = (low + high) // 2
            if self._ends(middle, tokens, tail, before, 1):
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return Match(tokens, 0, [])
        ends = self._ends(low - 1, tokens, tail, before, N_PLACES)
        return narrow(Match(tokens, self.indexes[low - 1].n, ends), tail)

    def _ends(self, at: int, tokens: list[int], tail: Tail, before: int, n_most: int) -> list[int]:
        index = self.indexes[at]
        return index.ends_of(tail.tokens[-index.n :], tokens, tail.hash(index.n), before, n_most)


def narrow(match: Match, tail: Tail) -> Match:
    """Keep the places whose match reaches back farthest."""
    source, length, ends = match.source, match.length, match.ends
    while length < len(tail.tokens):
        wanted = tail.tokens[-length - 1]
        longer = [end for end in ends if end > length and source[end - length - 1] == wanted]
        if not longer:
            break
        length, ends = length + 1, longer
    return Match(source, length, ends)


class Half:
    """Earlier outputs in a row, each after the end of its prompt and before END. `starts` are their first places."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.text = Text(SHARED_SIZES, [])
        self.starts: list[int] = []

    def catch_up(self) -> None:
        self.text.catch_up(self.tokens)

    def find(self, tail: Tail) -> Match:
        """The longest match, where it says something: prompts of a chat all end alike, so what an output has in common
        with another prompt's end does not count. A match as long as the tail does: the same question is asked again."""
        match = self.text.find(self.tokens, tail, len(self.tokens))
        if match.length == len(tail.tokens):
            match.chances = ELSEWHERE
            return match
        ends = [end for end in match.ends if self._n_inside(end) >= SHARED_SIZES[0]]
        return Match(self.tokens, min(match.length, self._n_inside(ends[0])) if ends else 0, ends, ELSEWHERE)

    def _n_inside(self, end: int) -> int:
        """How many tokens of its output come before this place."""
        at = bisect_right(self.starts, end)
        return end - self.starts[at - 1] if at else 0


class Outputs:
    """Earlier outputs, in a newer and an older half."""

    def __init__(self, n_tokens: int) -> None:
        self._n_half = n_tokens // 2
        self._halves: list[Half] = []

    def learn(self, ended: Sequence[tuple[Sequence[int], int]]) -> None:
        """Outputs after prompts of so many tokens."""
        for tokens, n_prompt in ended:
            self._add(tokens, n_prompt)
        if self._halves:
            self._halves[0].catch_up()

    def _add(self, tokens: Sequence[int], n_prompt: int) -> None:
        """With the prompt's end, so that the same question finds its answer."""
        n_before = min(n_prompt, LONGEST)
        learned = [*tokens[n_prompt - n_before :], END]
        n_cut = max(0, len(learned) - self._n_half)
        if n_cut == len(learned):
            return
        if not self._halves or len(self._halves[0].tokens) + len(learned) - n_cut > self._n_half:
            if self._halves:
                self._halves[0].catch_up()
            self._halves = [Half(), *self._halves[:1]]
        half = self._halves[0]
        half.starts.append(len(half.tokens) + max(0, n_before - n_cut))
        half.tokens += learned[n_cut:]

    def find(self, tail: Tail) -> list[Match]:
        return [half.find(tail) for half in self._halves]

    def __len__(self) -> int:
        return sum(len(half.tokens) for half in self._halves)


class Suffix(Drafter):
    name = "suffix"

    def __init__(self, params: SuffixParams) -> None:
        self._params = params
        self._texts: dict[int, Text] = {}
        self._n_prompt: dict[int, int] = {}
        self._ended: list[tuple[list[int], int]] = []
        self._outputs = Outputs(params.n_shared)

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        """Indexed when somebody requests: on a GPU that takes as long as a step, and often nobody does."""
        self._n_prompt[seq] = len(tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        n_prompt = self._n_prompt.setdefault(request.seq, len(request.tokens))
        text = self._text(request)
        self._learn_ended()
        tail = Tail(request.tokens, request.ahead, None if request.ahead else text.hashes)
        own = text.find(request.tokens, tail, tail.n_before)
        if own.ends and own.ends[0] < n_prompt:
            own.chances = IN_PROMPT
        return self._follow(request, max([own, *self._outputs.find(tail)], key=lambda match: match.length))

    def _text(self, request: DraftRequest) -> Text:
        text = self._texts.get(request.seq)
        if text is None:
            text = self._texts[request.seq] = Text(OWN_SIZES, request.tokens)
        text.catch_up(request.tokens)
        return text

    def _learn_ended(self) -> None:
        if self._ended:
            self._outputs.learn(self._ended)
            self._ended.clear()

    def _follow(self, request: DraftRequest, match: Match) -> Draft:
        """The places vote on one token after the other; the last one left is followed without asking."""
        draft = Draft(source=self.name)
        n_max = min(self._params.n_max, request.n_max)
        source, voters, chance = match.source, match.ends, 1.0
        grown = [*request.ahead]
        while len(voters) > 1 and len(draft) < n_max:
            seen = [token_at(source, grown, end) for end in voters]
            token, n_votes = elect(seen)
            confidence = seconded(n_votes / len(seen) * match.chances.of(match.length + len(draft)), n_votes)
            chance *= confidence
            if token == END or chance < self._params.p_min:
                return draft
            draft.tokens.append(token)
            draft.confidence.append(confidence)
            grown.append(token)
            voters = [end + 1 for end, said in zip(voters, seen, strict=True) if said == token]
        if voters:
            said = run_at(source, grown, voters[0], n_max - len(draft))
            length = match.length + len(draft)
            n = match.chances.n_likely(length, len(said), self._params.p_min / chance)
            n = said.index(END) if END in said[:n] else n
            draft.tokens += said[:n]
            draft.confidence += match.chances.growing(length, n)
        return draft

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """Nothing to learn: the history says it all."""

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        self._texts.pop(seq, None)
        n_prompt = self._n_prompt.pop(seq, len(tokens))
        if len(tokens) > n_prompt:
            n_cut = max(0, n_prompt - LONGEST)
            self._ended.append((list(tokens[n_cut:]), n_prompt - n_cut))
        if len(self._ended) > N_ENDED:
            self._learn_ended()

    def close(self) -> None:
        self._texts.clear()
        self._n_prompt.clear()


def token_at(source: Sequence[int], grown: Sequence[int], place: int) -> int:
    """What stands there; past its end the history goes on with what was proposed. Earlier outputs end with END, so only
    the history is ever read past its end."""
    return source[place] if place < len(source) else grown[place - len(source)]


def run_at(source: Sequence[int], grown: list[int], place: int, n: int) -> Sequence[int]:
    """The n tokens that stand there, in turn."""
    run = source[place : place + n]
    if len(run) == n or run[-1:] == [END]:
        return run
    run, grown = list(run), [*grown, *run]
    while len(run) < n:
        grown.append(grown[place + len(run) - len(source)])
        run.append(grown[-1])
    return run


def elect(seen: list[int]) -> tuple[int, int]:
    """The most frequent token and its votes; of equals the first, whose place is the newest. END only if alone."""
    if seen.count(seen[0]) == len(seen):
        return seen[0], len(seen)
    votes = Counter(token for token in seen if token != END)
    token = max(votes, key=votes.__getitem__)
    return token, votes[token]
