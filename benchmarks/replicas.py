"""Two engines behind one port (`paceline serve --replicas 2`) beside one engine: errors, kills, prefixes, latency.

    python -m benchmarks.replicas [--requests 500] [--clients 16] [--pairs 200]

Every request is first answered by one engine, undisturbed. Then the clients ask the same of two replicas, in random
order, while a replica's process is killed (`kill -9`) and later the process of an engine behind one: whatever an answer
lived through, it is the same to the byte. Prompts that share their beginnings are then sent to both servers; and last
one request at a time goes to one and the other in turn, which shows what the way through the front adds.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import httpx
from rich.progress import track

from benchmarks.answers import Broken, Lost
from benchmarks.bodies import kinds
from benchmarks.common import show
from benchmarks.kills import N_CTX, Case, Tally, client, references, tiny_model, try_one
from benchmarks.server import CHILD, PROC, Server, children, command, serving
from paceline.errors import PacelineError

N_SLOTS = 2
FLAGS = ("--exact", "-t", "1", "-ub", "64", "--metrics")
"""In exact mode prefixes are reused up to a multiple of the micro-batch."""
REPLICA = b"ray::ServeReplica"
BACK_S = 180.0
N_PREFIXES, N_ENDINGS, PREFIX, ENDING = 4, 50, 1280, 24
GOALS = {
    "errors": "0",
    "changed": "0",
    "kills": "2: a replica, an engine",
    "restarts": ">= 2",
    "cached_share_one": "0.95",
    "cached_share_two": ">= 0.9",
    "added_ms_median": "<= 5",
}


@contextmanager
def replicas(model: str, n: int = 2) -> Iterator[Server]:
    with serving(model, N_SLOTS, N_SLOTS * N_CTX, [*FLAGS, "--replicas", str(n)]) as server:
        yield server


# -- kills


def below(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from below(child)


def processes(server: Server, mark: bytes) -> list[int]:
    return [pid for pid in below(server.pid) if mark in command(pid)]


def kill(server: Server, mark: bytes) -> int:
    """One of them, at once."""
    victim = random.choice(processes(server, mark))
    os.kill(victim, signal.SIGKILL)
    return victim


def whole_again(server: Server, seconds: float = BACK_S) -> bool:
    """Whether all replicas are there, or are in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if all(replica["status"] == "ok" for replica in server.get("/health")["replicas"]):
            return True
        time.sleep(0.1)
    return False


@dataclass(frozen=True, slots=True)
class Blow:
    """After so many requests, kill a process of this kind."""

    after: int
    mark: bytes


def crowd(server: Server, cases: Sequence[Case], n: int, n_clients: int, blows: Sequence[Blow], seed: int) -> Tally:
    """n requests by so many clients, and what is killed on the way, once all that was killed before is back."""
    tally, chance = Tally(), random.Random(seed)
    wanted = [chance.choice(cases) for _ in range(n)]
    with ThreadPoolExecutor(n_clients) as pool:
        clients = [client(server) for _ in range(n_clients)]
        asked = [pool.submit(try_one, clients[i % n_clients], case, tally) for i, case in enumerate(wanted)]
        for blow in blows:
            while tally.n_requests < blow.after:
                time.sleep(0.02)
            whole_again(server)
            kill(server, blow.mark)
            tally.killed(loading=False)
        for each in track(asked, "asking, killing"):
            each.result()
    for http in clients:
        http.close()
    return tally


# -- prefixes


def prefixed(seed: int) -> list[str]:
    """Beginnings that many prompts share, as system prompts are, and the end of each; in random order."""
    chance = random.Random(seed)
    starts = ["".join(chance.choices("abcdefghijklmnop ", k=PREFIX)) for _ in range(N_PREFIXES)]
    texts = [start + "".join(chance.choices("qrstuvwxyz ", k=ENDING)) for start in starts for _ in range(N_ENDINGS)]
    chance.shuffle(texts)
    return texts


def cached_share(server: Server, n_clients: int) -> float:
    def ask(text: str) -> dict[str, Any]:
        body = {"prompt": text, "n_predict": 2, "temperature": 0}
        found: dict[str, Any] = httpx.post(f"{server.url}/completion", json=body, timeout=300).json()["timings"]
        return found

    with ThreadPoolExecutor(n_clients) as pool:
        timings = list(pool.map(ask, prefixed(0)))
    cached, read = (sum(each[name] for each in timings) for name in ("cache_n", "prompt_n"))
    return float(cached / (cached + read))


# -- latency


def latencies(one: Server, two: Server, n_pairs: int) -> tuple[list[float], list[float]]:
    """Milliseconds of short answers, one at a time, in turn."""
    found: dict[str, list[float]] = {one.url: [], two.url: []}
    with client(one) as first, client(two) as second:
        for number in track(range(n_pairs + 5), "one at a time"):
            for http in (first, second) if number % 2 else (second, first):
                found[str(http.base_url).rstrip("/")].append(milliseconds(http, number))
    return found[one.url][5:], found[two.url][5:]


def milliseconds(http: httpx.Client, number: int) -> float:
    body = {"prompt": f"the end of the {number}", "n_predict": 8, "temperature": 0, "ignore_eos": True}
    start = perf_counter()
    http.post("/completion", json=body).raise_for_status()
    return 1e3 * (perf_counter() - start)


# -- what the front's processor does


def front_cost(server: Server, n_requests: int = 100, n_streams: int = 16, n_tokens: int = 256) -> tuple[float, float]:
    """Milliseconds of its time for a request, and for a token that is streamed."""
    before = busy_ms(server.pid)
    with client(server) as http:
        for number in range(n_requests):
            http.post("/completion", json={"prompt": f"the {number}", "n_predict": 1}).raise_for_status()
    request = (busy_ms(server.pid) - before) / n_requests
    body = {"prompt": "the end", "n_predict": n_tokens, "stream": True, "ignore_eos": True}
    before = busy_ms(server.pid)
    with ThreadPoolExecutor(4) as pool, client(server) as http:
        list(pool.map(lambda seed: http.post("/completion", json={**body, "seed": seed}).read(), range(n_streams)))
    streams = busy_ms(server.pid) - before
    return request, (streams - n_streams * request) / (n_streams * n_tokens)


def busy_ms(pid: int) -> float:
    """The processor's time so far, which other work on the machine does not change."""
    user, system = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:13]
    return 1e3 * (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


# -- all of it


def measure(model: str, args: argparse.Namespace) -> dict[str, Any]:
    with serving(model, N_SLOTS, N_SLOTS * N_CTX, FLAGS) as one, replicas(model) as two:
        cases = references(one, kinds())
        blows = [Blow(args.requests // 4, REPLICA), Blow(args.requests // 2, CHILD)]
        start = perf_counter()
        tally = crowd(two, cases, args.requests, args.clients, blows, seed=1)
        seconds = perf_counter() - start
        for text in [*tally.lost, *tally.changed, *tally.broken]:
            print(text, file=sys.stderr)
        back = whole_again(two)
        health = two.get("/health")
        shares = [cached_share(server, n_clients) for server, n_clients in ((one, 4), (two, 4))]
        alone, through = latencies(one, two, args.pairs)
        added = quantiles([b - a for a, b in zip(alone, through, strict=True)], n=10)
        costs = [front_cost(server) for server in (one, two)]
        return {
            "requests": tally.n_requests,
            "clients": args.clients,
            "errors": sum(tally.lost.values()) + len(tally.broken) + tally.n_reconnects,
            "changed": len(tally.changed),
            "kills": tally.n_kills,
            "all_back": back,
            "restarts": health.get("restarts", 0),
            "longest_pause_s": round(tally.pause, 2),
            "seconds": round(seconds, 1),
            "cached_share_one": round(shares[0], 3),
            "cached_share_two": round(shares[1], 3),
            "alone_ms_median": round(median(alone), 2),
            "through_ms_median": round(median(through), 2),
            "added_ms_median": round(added[4], 2),
            "added_ms_p10": round(added[0], 2),
            "added_ms_p90": round(added[-1], 2),
            "front_ms_per_request": [round(request, 2) for request, _ in costs],
            "front_ms_per_token": [round(token, 3) for _, token in costs],
            "load_average": round(os.getloadavg()[0], 1),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=200)
    with TemporaryDirectory() as folder:
        found = measure(tiny_model(folder), parser.parse_args())
    show(found, GOALS)
    return 0 if not found["errors"] + found["changed"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (PacelineError, Broken, Lost) as error:
        sys.exit(f"{error}")
