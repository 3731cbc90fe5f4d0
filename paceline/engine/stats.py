"""What each drafter was asked, proposed and got right. Counters only; nothing grows with the text."""

from __future__ import annotations

from itertools import zip_longest

import msgspec

N_POSITIONS = 64


class DrafterStats(msgspec.Struct, array_like=True):
    """One drafter's record: of one request, or of the engine since its start. `drafted_at` and `accepted_at` count by
    position in the draft, as far as drafts went."""

    name: str
    n_calls: int = 0
    n_drafts: int = 0
    n_accepted_drafts: int = 0
    n_tokens: int = 0
    n_accepted_tokens: int = 0
    begin_ms: float = 0.0
    draft_ms: float = 0.0
    accept_ms: float = 0.0
    drafted_at: list[int] = []
    accepted_at: list[int] = []

    def asked(self, n_times: int, ms: float) -> None:
        """It was asked for drafts, and this is how long they took."""
        self.n_calls += n_times
        self.draft_ms += ms

    def count(self, n_drafted: int, n_accepted: int) -> None:
        """A draft of this many tokens was checked, this many of them were right."""
        self.n_drafts += 1
        self.n_accepted_drafts += n_accepted > 0
        self.n_tokens += n_drafted
        self.n_accepted_tokens += n_accepted
        n_positions = min(n_drafted, N_POSITIONS)
        for counts in (self.drafted_at, self.accepted_at):
            counts += [0] * (n_positions - len(counts))
        for position in range(n_positions):
            self.drafted_at[position] += 1
        for position in range(min(n_accepted, N_POSITIONS)):
            self.accepted_at[position] += 1

    def copy(self) -> DrafterStats:
        """As it stands now."""
        return msgspec.structs.replace(self, drafted_at=self.drafted_at.copy(), accepted_at=self.accepted_at.copy())

    def __add__(self, other: DrafterStats) -> DrafterStats:
        """Both together, under this one's name."""
        names = (name for name in self.__struct_fields__ if name not in ("name", "drafted_at", "accepted_at"))
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        drafted_at = [a + b for a, b in zip_longest(self.drafted_at, other.drafted_at, fillvalue=0)]
        accepted_at = [a + b for a, b in zip_longest(self.accepted_at, other.accepted_at, fillvalue=0)]
        return DrafterStats(self.name, **sums, drafted_at=drafted_at, accepted_at=accepted_at)

    def acceptance_by_position(self) -> list[float]:
        """Share of drafts that were right at position 0, 1, ...; as long as the longest draft seen."""
        return [a / d for a, d in zip(self.accepted_at, self.drafted_at, strict=True) if d]

    def line(self) -> str:
        """The shape llama-server prints, which users parse."""
        return (
            f"statistics {self.name.replace('-', '_')}: #calls = {self.n_calls}, #gen drafts = {self.n_drafts}, "
            f"#acc drafts = {self.n_accepted_drafts}, #gen tokens = {self.n_tokens}, "
            f"#acc tokens = {self.n_accepted_tokens}, "
            f"dur(b,g,a) = {self.begin_ms:.3f}, {self.draft_ms:.3f}, {self.accept_ms:.3f} ms"
        )


class Records:
    """Copies of a request's statistics for its events: the same ones until a drafter is asked again, since most tokens
    on a GPU are written without asking and copying takes longer than all else that is done for them."""

    __slots__ = ("_copies", "_n_calls", "_of", "n_accepted", "n_drafted")

    def __init__(self) -> None:
        self._of: dict[str, DrafterStats] = {}
        self._n_calls = 0
        self._copies: tuple[DrafterStats, ...] = ()
        self.n_drafted = self.n_accepted = 0  # tokens, of all drafters

    def of(self, stats: dict[str, DrafterStats]) -> tuple[DrafterStats, ...]:
        n_calls = sum([each.n_calls for each in stats.values()])
        if stats is not self._of or n_calls != self._n_calls:
            self._of, self._n_calls = stats, n_calls
            self._copies = tuple([each.copy() for each in stats.values()])
            self.n_drafted = sum([each.n_tokens for each in self._copies])
            self.n_accepted = sum([each.n_accepted_tokens for each in self._copies])
        return self._copies


def acceptance_line(n_accepted: int, n_drafted: int) -> str:
    """llama-server's summary over all drafters."""
    rate = n_accepted / n_drafted if n_drafted else 0.0
    return f"draft acceptance rate = {rate:.5f} ({n_accepted:5d} accepted / {n_drafted:5d} generated)"
