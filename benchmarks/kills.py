"""`kill -9` of the engine's process at random moments under load: nothing lost, nothing changed, no byte twice.

    python -m benchmarks.kills [--kills 1000] [--clients 8] [--every 0.5] [--demo | -m FILE]
    python -m benchmarks.kills --kills 0 --seconds 10       # the same load, and nobody dies

Every request is first answered undisturbed, streamed and whole. Then the clients ask the same in random order while the
engine's process is killed: some time after it is up, while it loads, at once when it appears. Whatever an answer lived
through, it is the same as undisturbed: text, tokens, probabilities, reasons, counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread
from time import perf_counter
from typing import Any

import httpx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.answers import Answer, Broken, Lost, difference, streamed, whole
from benchmarks.bodies import Kind, kinds, stop_in
from benchmarks.server import CHILD, Server, command, serving
from paceline.errors import PacelineError
from paceline.models import demo_model
from tests.tiny import write_model

N_SLOTS = 4
N_CTX = 4096
READ_S = 300.0
HEALTH_S = 0.05
APPEAR_S = 60.0
IN_A_ROW = 2  # kills before the child was up; more would look like a model that cannot be loaded
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and the answer it gets when nothing happens."""

    kind: Kind
    stream: bool
    answer: Answer

    @property
    def name(self) -> str:
        return f"{self.kind.name}{', streamed' if self.stream else ''}"


@dataclass(slots=True)
class Tally:
    """What happened. Threads add to it."""

    lock: Lock = field(default_factory=Lock)
    n_requests: int = 0
    n_reconnects: int = 0
    n_kills: int = 0
    n_loading: int = 0
    n_hits: int = 0
    n_running: int = 0
    most_kills: int = 0
    pause: float = 0.0
    lost: Counter[str] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    health_ms: list[float] = field(default_factory=list)
    health_codes: Counter[int] = field(default_factory=Counter)
    restarts: int = 0
    wall_s: float = 0.0

    @property
    def clean(self) -> bool:
        return not (self.lost or self.changed or self.broken or self.n_reconnects)

    def began(self) -> int:
        with self.lock:
            self.n_running += 1
            return self.n_kills

    def ended(self, n_kills_before: int, pause: float) -> None:
        with self.lock:
            self.n_running -= 1
            self.n_requests += 1
            self.pause = max(self.pause, pause)
            self.most_kills = max(self.most_kills, self.n_kills - n_kills_before)

    def killed(self, *, loading: bool) -> None:
        with self.lock:
            self.n_kills += 1
            self.n_loading += loading
            self.n_hits += self.n_running > 0

    def figures(self) -> dict[str, Any]:
        ms = sorted(self.health_ms) or [0.0]
        return {
            "kills": self.n_kills,
            "kills_while_loading": self.n_loading,
            "kills_with_requests_open": self.n_hits,
            "restarts": self.restarts,
            "requests": self.n_requests,
            "lost": sum(self.lost.values()),
            "changed": len(self.changed),
            "broken_streams": len(self.broken),
            "reconnects": self.n_reconnects,
            "most_kills_in_one_answer": self.most_kills,
            "longest_pause_s": round(self.pause, 3),
            "health_median_ms": round(median(ms), 2),
            "health_p99_ms": round(ms[int(0.99 * len(ms))], 2),
            "health_max_ms": round(ms[-1], 2),
            "health_codes": dict(self.health_codes),
            "wall_s": round(self.wall_s, 1),
        }


GOALS = {"lost": "0", "changed": "0", "broken_streams": "0", "reconnects": "0", "restarts": "as many as kills"}


# -- asking


def client(server: Server) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=httpx.Timeout(READ_S, connect=10), trust_env=False)


def ask(http: httpx.Client, kind: Kind, *, stream: bool) -> tuple[bytes, float]:
    """The reply as it came, and the longest pause once it had begun."""
    data, pause, last = b"", 0.0, 0.0
    with http.stream("POST", kind.path, json=kind.request(stream=stream)) as reply:
        for part in reply.iter_bytes():
            data += part
            now = perf_counter()
            pause, last = max(pause, now - (last or now)), now
    if reply.status_code != 200:
        raise Lost(f"status {reply.status_code}: {data.decode(errors='replace')[:200]}")
    return data, pause


def read(kind: Kind, data: bytes, *, stream: bool) -> Answer:
    return (streamed if stream else whole)(kind.path, data)


def undisturbed(http: httpx.Client, asked: Sequence[Kind]) -> list[Case]:
    """Every kind, streamed and whole; those two are the same already."""
    cases = []
    for kind in asked:
        pair = [
            Case(kind, stream, read(kind, ask(http, kind, stream=stream)[0], stream=stream)) for stream in (False, True)
        ]
        if parts := difference(pair[0].answer, pair[1].answer):
            raise Broken(f"{kind.name}: whole and streamed differ before anybody was killed: {parts}")
        cases += pair
    return cases


def stopping(cases: Sequence[Case]) -> list[Kind]:
    """Some of the kinds again, each with a stop string that its answer holds."""
    free = [case for case in cases if case.stream and "sampled" in case.kind.name]
    free += [case for case in cases if case.stream and "two choices" in case.kind.name]
    return [case.kind.stopped_by(stop) for case in free if (stop := stop_in(case.answer.texts[0].content))]


def references(server: Server, asked: Sequence[Kind]) -> list[Case]:
    with client(server) as http:
        cases = undisturbed(http, asked)
        return cases + undisturbed(http, stopping(cases))


# -- threads: clients, a watch, a killer


def keep_asking(server: Server, cases: Sequence[Case], tally: Tally, over: Event, seed: int) -> None:
    chance = random.Random(seed)
    with client(server) as http:
        while not over.is_set():
            try_one(http, chance.choice(cases), tally)


def try_one(http: httpx.Client, case: Case, tally: Tally) -> None:
    before, pause = tally.began(), 0.0
    try:
        data, pause = ask(http, case.kind, stream=case.stream)
        if parts := difference(case.answer, read(case.kind, data, stream=case.stream)):
            tally.changed.append(f"{case.name}: {parts}")
    except Broken as error:
        tally.broken.append(f"{case.name}: {error}")
    except Lost as error:
        tally.lost[f"{case.name}: {error}"] += 1
    except httpx.TransportError as error:
        with tally.lock:
            tally.n_reconnects += 1
            tally.lost[f"{case.name}: {type(error).__name__} {error}"] += 1
        time.sleep(0.1)
    finally:
        tally.ended(before, pause)


def watch_health(server: Server, tally: Tally, over: Event) -> None:
    with client(server) as http:
        while not over.wait(HEALTH_S):
            start = perf_counter()
            with suppress(httpx.TransportError):
                tally.health_codes[http.get("/health").status_code] += 1
            tally.health_ms.append(1e3 * (perf_counter() - start))


@dataclass(slots=True)
class Killer:
    """Waits for a child, picks a moment, kills it."""

    server: Server
    tally: Tally
    every: float
    chance: random.Random
    last: int | None = None
    in_a_row: int = 0

    def kill(self) -> None:
        child = self.appeared()
        loading = self.in_a_row < IN_A_ROW and self.chance.random() < 0.25
        if loading:
            time.sleep(self.chance.choice([0.0, self.chance.uniform(0, 1)]))
        else:
            self.up()
            time.sleep(self.chance.uniform(0, self.every))
        if CHILD in command(child):
            os.kill(child, signal.SIGKILL)
            self.tally.killed(loading=loading)
            self.in_a_row = self.in_a_row + 1 if loading else 0
        self.last = child

    def appeared(self) -> int:
        until = time.monotonic() + APPEAR_S
        while time.monotonic() < until and self.server.alive:
            child = self.server.child
            if child is not None and child != self.last:
                return child
            time.sleep(0.005)
        raise Lost(f"no child of process {self.server.pid} came within {APPEAR_S:.0f} s")

    def up(self) -> None:
        until = time.monotonic() + APPEAR_S
        while time.monotonic() < until:
            if health(self.server).get("status") == "ok":
                return
            time.sleep(0.01)
        raise Lost(f"the child was not up within {APPEAR_S:.0f} s")


def health(server: Server) -> dict[str, Any]:
    with client(server) as http:
        found = http.get("/health").json()
    return dict(found)


# -- the run


def disturb(
    server: Server, cases: Sequence[Case], *, n_kills: int, n_clients: int, every: float, seconds: float, seed: int
) -> Tally:
    """The load, with kills until there were enough of them, and for so many seconds at least."""
    tally, over, start = Tally(), Event(), perf_counter()
    crowd = [Thread(target=keep_asking, args=(server, cases, tally, over, seed + i)) for i in range(n_clients)]
    crowd.append(Thread(target=watch_health, args=(server, tally, over)))
    for thread in crowd:
        thread.start()
    killer = Killer(server, tally, every, random.Random(seed))
    try:
        while tally.n_kills < n_kills:
            killer.kill()
        time.sleep(max(0.0, start + seconds - perf_counter()))
    except (Lost, httpx.TransportError) as error:
        tally.lost[str(error)] += 1
    finally:
        over.set()
        for thread in crowd:
            thread.join()
    tally.wall_s = perf_counter() - start
    return settled(server, killer, tally)


def settled(server: Server, killer: Killer, tally: Tally) -> Tally:
    """Once the last child is up again."""
    try:
        if tally.n_kills:
            killer.appeared()
        killer.up()
        tally.restarts = int(health(server).get("restarts", 0))
    except (Lost, httpx.TransportError) as error:
        tally.lost[f"at the end: {error}"] += 1
    return tally


def tiny_model(folder: str) -> str:
    """Random weights, and room for long prompts."""
    return write_model(Path(folder) / "tiny.gguf", seed=1, scale=4.0, n_ctx=N_CTX)


def show(tally: Tally, server: Server) -> None:
    table = Table("what", "measured", "goal")
    for name, value in tally.figures().items():
        table.add_row(name, str(value), GOALS.get(name, ""))
    console = Console()
    console.print(table)
    failures = [*(f"lost {n} x {text}" for text, n in tally.lost.most_common(SHOWN))]
    failures += [f"changed {text}" for text in tally.changed[:SHOWN]]
    failures += [f"broken {text}" for text in tally.broken[:SHOWN]]
    for line in failures:
        console.print(escape(line))
    if not server.alive:
        console.print(escape("the front process died:\n" + "".join(server.said)))


def measure(model: str, args: argparse.Namespace) -> Tally:
    flags = ["--exact", "-t", str(args.threads), *args.flags]
    with serving(model, N_SLOTS, N_SLOTS * N_CTX, flags) as server:
        start = perf_counter()
        cases = references(server, kinds())
        print(f"{len(cases)} requests undisturbed in {perf_counter() - start:.1f} s", file=sys.stderr)
        tally = disturb(
            server,
            cases,
            n_kills=args.kills,
            n_clients=args.clients,
            every=args.every,
            seconds=args.seconds,
            seed=args.seed,
        )
        show(tally, server)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--every", type=float, default=0.5, help="a child lives up to so many seconds once it is up")
    parser.add_argument("--seconds", type=float, default=0.0, help="go on for so long at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--demo", action="store_true", help="the demo model instead of a tiny one of random weights")
    parser.add_argument("-m", "--model")
    parser.add_argument("flags", nargs="*", help="more flags for the server, after --")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        model = args.model or (demo_model() if args.demo else tiny_model(folder))
        tally = measure(model, args)
    print(json.dumps(tally.figures()))
    return 0 if tally.clean else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (PacelineError, Broken, Lost) as error:
        sys.exit(f"{error}")
