"""The server under load: a crowd, long prompts beside running answers, clients that leave.

    python -m benchmarks.load [--kind Q4_1] [--seconds 60] [--clients 64] [--slots 4] [--only crowd,prompts]

The server is a process of its own, the demo model behind it; the clients are as light as clients can be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from statistics import mean, median, quantiles
from time import perf_counter
from typing import Any

from benchmarks.common import guarded, show
from benchmarks.server import Server, serving
from paceline.models import demo_copy

SHORT = "Tell me something about the number {}."
STORY = "Write a long story about a fox who wanted to cross the river."
N_LONG = 4000
N_CTX = 16384
LEAVERS = 200


@dataclass(slots=True)
class Answer:
    """When each step of one answer came, seconds after it was asked for."""

    started: float
    steps: list[float] = field(default_factory=list)
    timings: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def wait(self) -> float:
        return self.steps[0] if self.steps else float("inf")

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip(self.steps, self.steps[1:], strict=False)]


async def ask(server: Server, path: str, **body: Any) -> AsyncGenerator[Answer, None]:
    """One streamed request, after every step. Leaving the loop leaves the server."""
    answer = Answer(perf_counter())
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        data = json.dumps({**body, "stream": True}).encode()
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        )
        status = await reader.readline()
        if b" 200 " not in status:
            answer.error = status.decode().strip()
        while not answer.error and (line := await reader.readline()):
            if line.startswith(b"data: [DONE]"):
                break
            if line.startswith(b'data: {"error"'):
                answer.error = line.decode()
            elif line.startswith(b"data: ") and b'"role":"assistant"' not in line:
                if b'"timings"' in line:
                    answer.timings = json.loads(line[6:])["timings"]
                else:
                    answer.steps.append(perf_counter() - answer.started)
                    yield answer
    finally:
        writer.close()
    yield answer


async def whole(server: Server, path: str, **body: Any) -> Answer:
    async for answer in ask(server, path, **body):
        last = answer
    return last


def messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# -- the three questions


async def crowd(server: Server, n_clients: int, seconds: float) -> dict[str, Any]:
    """Many clients at once, each asking again and again: errors, and who waited how long."""
    until = perf_counter() + seconds
    answers: list[list[Answer]] = [[] for _ in range(n_clients)]

    async def client(i: int) -> None:
        while perf_counter() < until:
            body = {"messages": messages(SHORT.format(i)), "max_tokens": 24, "temperature": 0}
            answers[i].append(await whole(server, "/v1/chat/completions", **body))

    await asyncio.gather(*(client(i) for i in range(n_clients)))
    waits = [answer.wait for own in answers for answer in own]
    n_tokens = sum(answer.timings.get("predicted_n", 0) for own in answers for answer in own)
    means = [mean(answer.wait for answer in own) for own in answers]
    return {
        "crowd_clients": n_clients,
        "crowd_answers": len(waits),
        "crowd_errors": sum(bool(answer.error) for own in answers for answer in own),
        "crowd_wait_median_s": round(median(waits), 3),
        "crowd_wait_max_s": round(max(waits), 3),
        "crowd_slowest_client_over_median": round(max(means) / median(means), 3),
        "crowd_longest_wait_over_median": round(max(waits) / median(waits), 3),
        "crowd_tokens_per_second": round(n_tokens / seconds, 1),
    }


async def long_prompts(server: Server, seconds: float) -> dict[str, Any]:
    """Time between tokens of running answers: alone, and beside prompts of 4,000 tokens that keep arriving."""
    tokens = [int(i) for i in range(1000, 1000 + N_LONG)]

    async def streams(beside: bool) -> list[float]:
        until = perf_counter() + seconds
        gaps: list[float] = []

        async def run(i: int) -> None:
            body = {"messages": messages(STORY + "!" * i), "temperature": 0.8, "seed": i, "ignore_eos": True}
            async with aclosing(ask(server, "/v1/chat/completions", **body)) as answers:
                async for answer in answers:
                    if perf_counter() > until:
                        gaps.extend(answer.gaps[8:])
                        return

        async def prompts() -> None:
            n = 0
            while beside and perf_counter() < until - 1:
                n += 1
                await whole(server, "/completion", prompt=[n % 900 + 10, *tokens], n_predict=1, cache_prompt=True)

        await asyncio.gather(run(0), run(1), prompts())
        return gaps

    quiet = await streams(beside=False)
    await asyncio.to_thread(server.free)
    busy = await streams(beside=True)
    p99 = [quantiles(gaps, n=100)[98] for gaps in (quiet, busy)]
    return {
        "prompts_quiet_p50_ms": round(1e3 * median(quiet), 1),
        "prompts_quiet_p99_ms": round(1e3 * p99[0], 1),
        "prompts_busy_p50_ms": round(1e3 * median(busy), 1),
        "prompts_busy_p99_ms": round(1e3 * p99[1], 1),
        "prompts_p99_ratio": round(p99[1] / p99[0], 2),
    }


async def leavers(server: Server, n: int) -> dict[str, Any]:
    """Clients that leave in the middle of their answer."""

    async def leave(i: int) -> None:
        body = {"messages": messages(SHORT.format(i)), "ignore_eos": True}
        async with aclosing(ask(server, "/v1/chat/completions", **body)) as answers:
            async for answer in answers:
                if len(answer.steps) >= 3:
                    return

    async def wave(first: int, n: int) -> None:
        for start in range(first, first + n, 20):
            await asyncio.gather(*(leave(i) for i in range(start, start + 20)))

    await wave(0, 60)
    await asyncio.to_thread(server.free)
    before = server.resident_mb
    await wave(60, n)
    free = await asyncio.to_thread(server.free)
    return {
        "leavers": n,
        "leavers_all_slots_free": free,
        "leavers_memory_growth_mb": round(server.resident_mb - before, 1),
    }


GOALS = {
    "crowd_errors": "0",
    "crowd_slowest_client_over_median": "<= 3",
    "crowd_longest_wait_over_median": "<= 3",
    "prompts_p99_ratio": "<= 4",
    "leavers_all_slots_free": "True",
    "leavers_memory_growth_mb": "flat",
}


async def measure(server: Server, args: argparse.Namespace) -> dict[str, Any]:
    questions: dict[str, Callable[[], Awaitable[dict[str, Any]]]] = {
        "crowd": lambda: crowd(server, args.clients, args.seconds),
        "prompts": lambda: long_prompts(server, min(args.seconds, 20)),
        "leavers": lambda: leavers(server, LEAVERS),
    }
    result: dict[str, Any] = {}
    for name in args.only.split(","):
        print(f"measuring {name} …", file=sys.stderr)
        result |= await questions[name]()
        await asyncio.to_thread(server.free)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="Q4_1", help="precision of the demo model")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--only", default="crowd,prompts,leavers")
    args = parser.parse_args()
    model, _ = demo_copy(args.kind)
    with serving(model, args.slots, N_CTX, ["-kvu", "--stream-interval", "0"]) as server:
        result = asyncio.run(measure(server, args))
    show(result, GOALS)


if __name__ == "__main__":
    guarded(main)
