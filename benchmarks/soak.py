"""Ten minutes at full speed on a tiny model: no errors, memory and descriptors of both processes flat.

    python -m benchmarks.soak [--minutes 10] [--clients 6] [--settle 2]

The clients ask for everything: texts of all kinds, streamed and whole, each with a seed of its own; health, metrics,
slots, statistics, tokens; and some leave in the middle of a stream. A line is fitted after the first minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import linear_regression
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread
from time import perf_counter
from typing import Any

import httpx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.answers import Broken, Lost
from benchmarks.bodies import Kind, kinds, story
from benchmarks.kills import N_CTX, N_SLOTS, ask, client, read, tiny_model
from benchmarks.server import Footprint, Server, footprint, serving
from paceline.errors import PacelineError

SAMPLE_S = 5.0
PAGES = ("/health", "/metrics", "/slots", "/paceline/stats", "/props", "/v1/models")
LIMITS = {"rss_mb": 1.0, "pss_mb": 1.0, "n_files": 1.0}  # a minute
SHOWN = 5


@dataclass(slots=True)
class Tally:
    """What was asked and what went wrong. Threads add to it."""

    lock: Lock = field(default_factory=Lock)
    n: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def count(self, what: str) -> None:
        with self.lock:
            self.n[what] += 1

    def failed(self, what: str) -> None:
        with self.lock:
            self.errors[what] += 1


@dataclass(slots=True)
class Track:
    """One process over time: minutes, and what it held."""

    minutes: list[float] = field(default_factory=list)
    held: list[Footprint] = field(default_factory=list)

    def add(self, minute: float, held: Footprint) -> None:
        self.minutes.append(minute)
        self.held.append(held)

    def after(self, settle: float) -> Track:
        first = next((i for i, minute in enumerate(self.minutes) if minute >= settle), len(self.minutes))
        return Track(self.minutes[first:], self.held[first:])

    def slope(self, name: str) -> float:
        """Growth a minute, by least squares."""
        if len(self.held) < 2:
            return 0.0
        return linear_regression(self.minutes, [getattr(held, name) for held in self.held]).slope


# -- clients


def keep_asking(server: Server, asked: Sequence[Kind], tally: Tally, over: Event, seed: int) -> None:
    chance = random.Random(seed)
    with client(server) as http:
        while not over.is_set():
            try_one(http, asked, chance, tally)


def try_one(http: httpx.Client, asked: Sequence[Kind], chance: random.Random, tally: Tally) -> None:
    work = chance.choices([text, leave, page, tokens], [70, 10, 15, 5])[0]
    try:
        work(http, chance.choice(asked).with_seed(chance.getrandbits(31)), chance)
        tally.count(work.__name__)
    except (Broken, Lost, httpx.HTTPError) as error:
        tally.failed(f"{work.__name__}: {type(error).__name__} {error}"[:300])


def text(http: httpx.Client, kind: Kind, chance: random.Random) -> None:
    stream = chance.random() < 0.5
    read(kind, ask(http, kind, stream=stream)[0], stream=stream)


def leave(http: httpx.Client, kind: Kind, chance: random.Random) -> None:
    """Reads some parts of a stream and goes."""
    with http.stream("POST", kind.path, json=kind.request(stream=True)) as reply:
        reply.raise_for_status()
        for _ in zip(range(chance.randrange(8)), reply.iter_bytes(), strict=False):
            pass


def page(http: httpx.Client, _: Kind, chance: random.Random) -> None:
    http.get(chance.choice(PAGES)).raise_for_status()


def tokens(http: httpx.Client, _: Kind, chance: random.Random) -> None:
    content = story(chance.randrange(1, 3000), chance.randrange(200))
    http.post("/tokenize", json={"content": content}).raise_for_status()


# -- the run


def soak(server: Server, tally: Tally, minutes: float, n_clients: int) -> dict[str, Track]:
    over, start = Event(), perf_counter()
    crowd = [Thread(target=keep_asking, args=(server, kinds(), tally, over, i)) for i in range(n_clients)]
    for thread in crowd:
        thread.start()
    tracks = {"front": Track()}
    try:
        while server.alive and (minute := (perf_counter() - start) / 60) < minutes:
            sample(server, minute, tracks)
            over.wait(SAMPLE_S)
    finally:
        over.set()
        for thread in crowd:
            thread.join()
    if not server.alive:
        tally.failed("the front process died:\n" + "".join(server.said))
    return tracks


def sample(server: Server, minute: float, tracks: dict[str, Track]) -> None:
    """A child that comes again is another process, with a track of its own."""
    tracks["front"].add(minute, footprint(server.pid))
    if child := server.child:
        tracks.setdefault(f"child {child}", Track()).add(minute, footprint(child))


def figures(tally: Tally, tracks: dict[str, Track], settle: float, wall_s: float) -> dict[str, Any]:
    settled = {name: track.after(settle) for name, track in tracks.items()}
    return {
        "requests": sum(tally.n.values()),
        "requests_by_kind": dict(tally.n),
        "errors": sum(tally.errors.values()),
        "wall_s": round(wall_s, 1),
        "processes": {name: asdict(track.held[-1]) for name, track in tracks.items()},
        "a_minute": {name: {m: round(track.slope(m), 3) for m in LIMITS} for name, track in settled.items()},
    }


def flat(result: dict[str, Any]) -> bool:
    return all(slopes[name] < limit for slopes in result["a_minute"].values() for name, limit in LIMITS.items())


def show(result: dict[str, Any], tally: Tally) -> None:
    table = Table("what", "measured", "a minute", "goal")
    table.add_row("requests", f"{result['requests']}", "", "")
    for name, n in result["requests_by_kind"].items():
        table.add_row(f"- {name}", f"{n}", "", "")
    table.add_row("errors", f"{result['errors']}", "", "0")
    for process, held in result["processes"].items():
        for name, limit in LIMITS.items():
            slope = result["a_minute"][process][name]
            table.add_row(f"{process}, {name}", f"{held[name]:.1f}", f"{slope:+.3f}", f"under {limit:.0f} a minute")
    console = Console()
    console.print(table)
    for line, n in tally.errors.most_common(SHOWN):
        console.print(escape(f"{n} x {line}"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--settle", type=float, default=2, help="the first minutes, which do not count")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=Path, help="write every sample to this file, as JSON")
    args = parser.parse_args()
    tally, start = Tally(), perf_counter()
    with TemporaryDirectory() as folder:
        flags = ["-t", str(args.threads), "--metrics"]
        with serving(tiny_model(folder), N_SLOTS, N_SLOTS * N_CTX, flags) as server:
            tracks = soak(server, tally, args.minutes, args.clients)
    result = figures(tally, tracks, min(args.settle, args.minutes / 2), perf_counter() - start)
    show(result, tally)
    if args.samples:
        args.samples.write_text(json.dumps({name: asdict(track) for name, track in tracks.items()}))
    print(json.dumps(result))
    return 0 if flat(result) and not result["errors"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PacelineError as error:
        sys.exit(f"{error}")
