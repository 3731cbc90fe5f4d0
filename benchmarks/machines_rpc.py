"""A model over RPC workers: the same words, at what speed, how soon it is loaded again, and what a lost worker costs.

    python -m benchmarks.machines_rpc [--draft FILE] [-n 96] [--rounds 3] [--only words,weights,loss]

Needs libllama with RPC: `tests/rpc/run` builds an environment and runs this in it. All workers are on this machine; a
network is a line that keeps what is sent for as long, and lets so much through. On few cores the workers compute one
after the other anyhow: layers wait for each other.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import Any

import httpx
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import chat, draft_model, guarded, prompts
from benchmarks.server import Server, serving
from benchmarks.workers import Worker, lending, slow_line, start
from paceline import Engine
from paceline.cli.kept_weights import SETTLED
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.llama import rpc
from paceline.models import demo_model
from tests.tiny import write_model

PARTS = ("words", "weights", "loss")
FLAGS = ["-t", "1", "--exact"]
FAR = 0.0005  # seconds each way
GIGABIT = 110e6  # bytes a second
CONTEXT = ContextParams(n_ctx=2048, n_threads=1)
OUTPUT_HERE = ((r"^output\.weight|^token_embd", "CPU"),)
N_CLIENTS = 4
AWAY_S = 3.0

console = Console()


# -- the same words, and their speed


@dataclass(slots=True)
class Place:
    """An engine, where its parts are, and what it wrote at which speed."""

    name: str
    engine: Engine
    texts: dict[str, list[str]] = field(default_factory=lambda: {"plain": [], "drafted": []})
    speeds: dict[str, list[float]] = field(default_factory=lambda: {"plain": [], "drafted": []})

    def write(self, prompt: str, how: str, n: int) -> None:
        off = {"n_max": 0} if how == "plain" else None
        generation = self.engine.generate(
            chat(self.engine, prompt), max_tokens=n, temperature=0, ignore_eos=True, speculative=off, cache_prompt=False
        )
        self.texts[how].append(generation.text())
        self.speeds[how].append(1e3 * n / generation.timings.predicted_ms)

    def speed(self, how: str) -> float:
        return median(self.speeds[how])


def words(args: argparse.Namespace) -> dict[str, Any]:
    """Every prompt in every place, one after the other, so that the machine's moods hit all alike."""
    with ExitStack() as stack:
        places = [Place(name, stack.enter_context(engine)) for name, engine in engines(args, stack)]
        asked = [prompt.text for prompt in prompts(args.rounds)]
        for text in track(asked, "writing", console=Console(stderr=True)):
            for how in ("drafted", "plain"):
                for place in places:
                    place.write(text, how, args.n_tokens)
    return shown(places)


def engines(args: argparse.Namespace, stack: ExitStack) -> Iterator[tuple[str, Engine]]:
    draft = draft_model(args.draft)
    yield "one process", opened(draft, (), ())
    near = [worker.endpoint for worker in stack.enter_context(lending(2, FLAGS))]
    yield "two workers", opened(draft, near, near[1:])
    alone = [worker.endpoint for worker in stack.enter_context(lending(2, FLAGS))]
    yield "two workers, draft here", opened(draft, alone, ())
    for what in ("", ", draft here", ", draft and output here"):
        ports = [worker.port for worker in stack.enter_context(lending(2, FLAGS))]
        lines = [stack.enter_context(slow_line(port, delay=FAR, bytes_per_s=GIGABIT)) for port in ports]
        far = [f"127.0.0.1:{port}" for port in lines]
        there, tensors = () if "draft" in what else far[1:], OUTPUT_HERE if "output" in what else ()
        yield f"1 Gbit/s and {2e3 * FAR:g} ms away{what}", opened(draft, far, there, tensors)


def opened(
    draft: str, target_at: Sequence[str], draft_at: Sequence[str], tensors: tuple[tuple[str, str], ...] = ()
) -> Engine:
    settings = Settings(
        model=ModelParams(path=demo_model(), rpc=tuple(target_at), tensors=tensors),
        draft=ModelParams(path=draft, rpc=tuple(draft_at)),
        context=CONTEXT,
        draft_context=CONTEXT,
        engine=EngineParams(exact=True, spec_types=("draft-simple",)),
    )
    return Engine.from_settings(settings, process=True)


def shown(places: Sequence[Place]) -> dict[str, Any]:
    first = places[0]
    table = Table("where", "plain tok/s", "drafted tok/s", "drafting gains", "same text", title="exact, greedy")
    result: dict[str, Any] = {}
    for place in places:
        same = place.texts == first.texts and place.texts["plain"] == place.texts["drafted"]
        plain, drafted = place.speed("plain"), place.speed("drafted")
        table.add_row(place.name, f"{plain:.1f}", f"{drafted:.1f}", f"{drafted / plain:.2f}", "yes" if same else "NO")
        result[place.name] = {"plain": round(plain, 1), "drafted": round(drafted, 1), "same": same}
    console.print(table)
    return result


# -- loading again


def weights(args: argparse.Namespace) -> dict[str, Any]:
    """Matrices of 16 and 32 MiB; ggml keeps none below 10. The second start finds them beside the worker."""
    table = Table("line", "first load s", "second s", "without cache, second s", title="loading 320 MiB on one worker")
    result: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "wide.gguf", n_embd=2048, n_layer=2)
        for name, rate in (("loopback", float("inf")), ("1 Gbit/s", GIGABIT)):
            kept = loads(model, [*FLAGS, "-c", str(Path(folder) / name.replace("/", ""))], rate)
            sent = loads(model, FLAGS, rate)
            table.add_row(name, f"{kept[0]:.1f}", f"{kept[1]:.1f}", f"{sent[1]:.1f}")
            result[name] = {"first": kept[0], "second": kept[1], "uncached": sent[1]}
    console.print(table)
    return result


def loads(model: str, flags: Sequence[str], rate: float) -> list[float]:
    """Seconds of two loads, with a new worker for each."""
    seconds = []
    for _ in range(2):
        with lending(1, flags) as [worker], line(worker, rate) as endpoint:
            begun = perf_counter()
            settings = Settings(
                model=ModelParams(path=model, rpc=(endpoint,)),
                context=ContextParams(n_ctx=256, n_threads=1),
                engine=EngineParams(warmup=False),
            )
            with Engine.from_settings(settings, process=True):
                seconds.append(round(perf_counter() - begun, 2))
            sleep(2 * SETTLED)  # until what was written counts as whole
    return seconds


@contextmanager
def line(worker: Worker, rate: float) -> Iterator[str]:
    if rate == float("inf"):
        yield worker.endpoint
        return
    with slow_line(worker.port, bytes_per_s=rate) as port:
        yield f"127.0.0.1:{port}"


# -- a worker that is lost


@dataclass(slots=True)
class Reader:
    """A client that streams: the text so far, and the longest time without a word."""

    text: str = ""
    pause: float = 0.0
    error: str = ""
    n_before: int = 0

    def read(self, url: str, body: Mapping[str, Any]) -> None:
        last = monotonic()
        with httpx.stream("POST", f"{url}/completion", json=body, timeout=600) as reply:
            for row in reply.iter_lines():
                if not row.startswith("data: "):
                    continue
                event = json.loads(row.removeprefix("data: "))
                self.error = str(event.get("error", ""))
                self.text += event.get("content", "")
                self.pause, last = max(self.pause, monotonic() - last), monotonic()


def loss(args: argparse.Namespace) -> dict[str, Any]:
    """Four clients are being written for when one of two workers is killed; another takes its place after a while."""
    with lending(2, FLAGS) as workers:
        addresses = ",".join(worker.endpoint for worker in workers)
        with serving(demo_model(), N_CLIENTS, 4096, ["--rpc", addresses, "--exact", "-t", "1"]) as server:
            calm = together(server, args.n_tokens, None)
            readers = together(server, args.n_tokens, workers)
            health, alive = server.get("/health"), server.alive
    return told(calm, readers, health, alive)


def together(server: Server, n: int, workers: list[Worker] | None) -> list[Reader]:
    """Everybody asks at once; with workers one of them is killed when half is written."""
    readers = [Reader() for _ in range(N_CLIENTS)]
    threads = []
    for i, reader in enumerate(readers):
        body = {"prompt": f"Story {i}: once", "n_predict": n, "temperature": 0, "ignore_eos": True, "stream": True}
        threads.append(threading.Thread(target=reader.read, args=(server.url, body)))
        threads[-1].start()
    if workers:
        while min(len(reader.text) for reader in readers) < 2 * n:
            sleep(0.02)
        workers[1].kill()
        for reader in readers:
            reader.n_before = len(reader.text)
        sleep(AWAY_S)
        workers[1] = start(FLAGS, workers[1].port)
    for thread in threads:
        thread.join()
    return readers


def told(calm: Sequence[Reader], readers: Sequence[Reader], health: Any, alive: bool) -> dict[str, Any]:
    title = f"a worker killed under {N_CLIENTS} clients, back after {AWAY_S:g} s"
    table = Table("client", "characters before", "pause s", "characters in all", "error", "same text", title=title)
    same = [was.text == now.text for was, now in zip(calm, readers, strict=True)]
    for i, now in enumerate(readers):
        pause, told_so = f"{now.pause:.1f}", "yes" if same[i] else "NO"
        table.add_row(str(i), str(now.n_before), pause, str(len(now.text)), now.error or "-", told_so)
    console.print(table)
    console.print(f"server {'up' if alive else 'DOWN'}; /health: {json.dumps(health)[:160]}", markup=False)
    return {"same": same, "pauses": [round(now.pause, 1) for now in readers], "alive": alive}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draft", help="a draft model for SmolLM2-135M-Instruct")
    parser.add_argument("-n", "--n-tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3, help="prompts")
    parser.add_argument("--only", default=",".join(PARTS), help="some of these, with commas")
    args = parser.parse_args()
    rpc.check_available()
    work = {"words": words, "weights": weights, "loss": loss}
    print(json.dumps({name: work[name](args) for name in PARTS if name in args.only.split(",")}))


if __name__ == "__main__":
    guarded(main)
