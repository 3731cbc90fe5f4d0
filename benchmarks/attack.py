"""Everything a stranger, a file or a disk can do to the server, on loopback and for a bounded time: damaged models,
nonsense in bodies, slow clients, floods, kills, damaged slot files, kills while saving, a full disk. After each of them
a plain request has to get the answer it got before, and so does somebody else who asks all the while.

    python -m benchmarks.attack --minutes 10
    python -m benchmarks.attack --hours 2 --parts models,bodies

Prints a table, then one JSON line; the exit code is 1 when something died, hung or answered wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.bodies import Kind, kinds
from benchmarks.bystander import Bystander
from benchmarks.kills import disturb, references, tiny_model
from benchmarks.server import Server, serving
from tests.tiny import write_model

N_SLOTS, N_CTX = 2, 2048
LOAD_S = 60.0
ANSWER_S = 60.0
FLOOD = 200
SAVED = (627, 1139)  # tokens of the two texts: prompt and answer, all but the last one
OTHERS = "somebody else"
N_ANSWER = 16
GOOD = {"prompt": "The fox", "n_predict": N_ANSWER, "temperature": 0, "id_slot": 0}
BAD = ("signal in the front", "hang", "wrong answer", "front died", "server error", "lost")
ODD: tuple[Any, ...] = (None, True, -1, 0, 2**31, 2**63, 1e308, float("1e-320"), "", "\0", "x" * 10_000, [], {})
ODD += ([[]] * 50, [None], {"": {}}, "\ud83d\ude00", [-1], [2**40], "root ::= root", {"type": "object", "$ref": "#"})
FRONT = """
import sys
from paceline import Engine
from paceline.errors import PacelineError
for line in sys.stdin:
    model, draft = line.rstrip("\\n").split("\\t")
    try:
        options = {"draft": draft, "spec_types": ("draft-simple",)} if draft else {}
        with Engine(model, n_ctx=256, n_threads=1, process=True, **options) as engine:
            engine.generate("hello", max_tokens=4).text()
        print("text", flush=True)
    except PacelineError as error:
        print("signal in the child" if "killed by" in str(error) else "clear error", flush=True)
"""


@dataclass(slots=True)
class Attack:
    """One server, a clock, and what came of it."""

    server: Server
    folder: Path
    expected: str
    until: float
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, timeout=ANSWER_S, trust_env=False)

    def still_right(self) -> None:
        """A plain request, after whatever was done."""
        if not self.server.alive:
            self.counts["front died"] += 1
            self.until = 0.0
            return
        try:
            with self.client() as http:
                self.counts["right answer" if answer(http) == self.expected else "wrong answer"] += 1
        except httpx.TransportError:
            self.counts["hang"] += 1


def answer(http: httpx.Client) -> str:
    reply = http.post("/completion", json=GOOD)
    return str(reply.json().get("content", reply.text))


# -- the parts


def models(attack: Attack) -> None:
    """Damaged files as target and as draft, loaded by one front process that has to live through all of them."""
    good = write_model(attack.folder / "good.gguf", seed=1)
    data, path = Path(good).read_bytes(), attack.folder / "damaged.gguf"
    n_head = data.index(b"token_embd.weight") + 2000
    words = [sys.executable, "-c", FRONT]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as front:
        assert front.stdin and front.stdout
        while not attack.over:
            path.unlink(missing_ok=True)  # a file that changes under a process is another trouble
            path.write_bytes(damaged(data, attack.chance, n_head))
            pair = attack.chance.choice([(str(path), ""), (good, str(path))])
            start = time.monotonic()
            front.stdin.write("\t".join(pair) + "\n")
            came = front.stdout.readline().strip()
            attack.counts[came or "signal in the front"] += 1
            attack.counts["hang"] += time.monotonic() - start > LOAD_S
            if not came:
                return
        front.stdin.close()


def damaged(data: bytes, chance: random.Random, n_head: int) -> bytes:
    """Mostly its header: of weights any bits are a model."""
    found, at = bytearray(data), chance.randrange(4, n_head)
    match chance.choice(["flip", "number", "cut", "cut in the header", "remove", "extend"]):
        case "flip":
            found[at] ^= 1 << chance.randrange(8)
        case "number":
            found[at : at + 4] = chance.choice([b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", chance.randbytes(4)])
        case "cut":
            del found[chance.randrange(len(found)) :]
        case "cut in the header":
            del found[at:]
        case "remove":
            del found[at : at + chance.randrange(1, 64)]
        case "extend":
            found[at:at] = chance.randbytes(chance.randrange(1, 64))
    return bytes(found)


def bodies(attack: Attack) -> None:
    """Valid bodies with something odd in them, and bytes that are no JSON at all."""
    asked = kinds()
    with attack.client() as http:
        for n in counting(attack, 200):
            kind = attack.chance.choice(asked)
            body = {**kind.body, "max_tokens": 8, "n_predict": 8}
            content = nonsense(body, attack.chance)
            try:
                reply = http.post(kind.path, content=content, headers={"Content-Type": "application/json"})
                attack.counts["server error" if reply.status_code >= 500 else f"status {reply.status_code}"] += 1
            except httpx.TransportError:
                attack.counts["lost"] += 1
            if n % 50 == 0:
                attack.still_right()


def nonsense(body: dict[str, Any], chance: random.Random) -> bytes:
    key = chance.choice([*body, "stop", "logit_bias", "response_format", "tools", "samplers", "n", "stream", "new"])
    changed = {**body, key: chance.choice(ODD)}
    data = json.dumps(changed).encode()
    if chance.random() < 0.3:
        at = chance.randrange(len(data))
        return data[:at] + chance.randbytes(chance.randrange(4)) + data[at + chance.randrange(3) :]
    return data


def counting(attack: Attack, at_least: int = 1) -> Iterator[int]:
    """Until the time is over; so many times on a slow machine too."""
    n = 0
    while not attack.over or (n < at_least and attack.server.alive):
        n += 1
        yield n


def slow(attack: Attack) -> None:
    """Clients that stop halfway: in a line, in headers, in a body, while reading; or leave, or say nothing."""
    host, port = attack.server.host, attack.server.port
    body = json.dumps({"prompt": "on and on", "n_predict": 200, "stream": True, "ignore_eos": True}).encode()
    head = b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole = head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    starts = [b"", whole[:9], head, whole[:-10], whole, head + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n{"]
    for _ in counting(attack):
        with ExitStack() as held:
            for start in starts * 5:
                sock = held.enter_context(closing(socket.create_connection((host, port), timeout=5)))
                with suppress(OSError):
                    sock.sendall(start)
                attack.counts["slow clients"] += 1
            attack.still_right()


def flood(attack: Attack) -> None:
    """Many connections and requests at once."""
    for _ in counting(attack):
        with ExitStack() as held:
            for _ in range(FLOOD):
                with suppress(OSError):
                    address = (attack.server.host, attack.server.port)
                    sock = held.enter_context(closing(socket.create_connection(address, timeout=5)))
                    body = json.dumps({**GOOD, "id_slot": -1}).encode()
                    sock.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
                    sock.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
                    attack.counts["connections"] += 1
        attack.still_right()


def kills(attack: Attack) -> None:
    asked: list[Kind] = [kind for kind in kinds() if "greedy" in kind.name]
    cases = references(attack.server, asked)
    while not attack.over:
        seed = attack.chance.randrange(2**32)
        tally = disturb(attack.server, cases, n_kills=5, n_clients=3, every=0.5, seconds=0, seed=seed)
        attack.counts["kills"] += tally.n_kills
        attack.counts["lost"] += sum(tally.lost.values()) + len(tally.broken)
        attack.still_right()


def slot_files(attack: Attack) -> None:
    """Damaged, cut and extended files of a saved slot."""
    with attack.client() as http:
        answer(http)
        assert saved(http, "save").status_code == 200
        file = attack.folder / "kept"
        good = file.read_bytes()
        for n in counting(attack, 40):
            while (bad := damaged(good, attack.chance, len(good))) == good:
                pass
            file.write_bytes(bad)
            reply = saved(http, "restore")
            attack.counts["refused" if reply.status_code == 400 else "wrong answer"] += 1
            if n % 20 == 0:
                attack.still_right()
        file.write_bytes(good)
        attack.counts["restored" if saved(http, "restore").status_code == 200 else "wrong answer"] += 1
    attack.still_right()


def saves(attack: Attack) -> None:
    """Kills while a slot is being saved: what is found afterwards is the old file or the new one, whole."""
    texts = [{**GOOD, "prompt": letter * (n - N_ANSWER + 1)} for letter, n in zip("ab", SAVED, strict=True)]
    with attack.client() as http:
        for n in counting(attack):
            http.post("/completion", json=texts[n % 2])
            child = attack.server.child
            if not child or (n <= 2 and saved(http, "save").status_code != 200):
                continue
            killer = Timer(attack.chance.uniform(0.0, 0.02), kill, (child, signal.SIGKILL))
            killer.start()
            saved(http, "save")
            killer.join()
            reply = saved(http, "restore")
            n_read = reply.json().get("n_restored") if reply.status_code == 200 else None
            attack.counts["whole" if n_read in SAVED else "wrong answer"] += 1
            attack.still_right()


def kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def disk(attack: Attack) -> None:
    """A limit on the size of files stands for a disk that is full."""
    with attack.client() as http:
        answer(http)
        saved(http, "save")
        before = (attack.folder / "kept").read_bytes()
        child = attack.server.child
        assert child
        for _ in counting(attack, 5):
            limits = resource.prlimit(child, resource.RLIMIT_FSIZE, (attack.chance.randrange(len(before)), -1))
            reply = saved(http, "save")
            resource.prlimit(child, resource.RLIMIT_FSIZE, limits)
            whole = (attack.folder / "kept").read_bytes() == before
            attack.counts["refused" if reply.status_code == 400 and whole else "wrong answer"] += 1
            time.sleep(0.05)
        attack.counts["restored" if saved(http, "restore").status_code == 200 else "wrong answer"] += 1
    attack.still_right()


def saved(http: httpx.Client, action: str) -> httpx.Response:
    return http.post(f"/slots/0?action={action}", json={"filename": "kept"})


PARTS: dict[str, Callable[[Attack], None]] = {
    "models": models,
    "bodies": bodies,
    "slow": slow,
    "flood": flood,
    "kills": kills,
    "slots": slot_files,
    "saves": saves,
    "disk": disk,
}


# -- the run


def attacked(parts: list[str], seconds: float, seed: int) -> dict[str, Counter[str]]:
    """What each part counted, in an equal share of the time."""
    found: dict[str, Counter[str]] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        flags = ["--exact", "-t", "1", "--slots", "--slot-save-path", name]
        with serving(tiny_model(name), N_SLOTS, N_SLOTS * N_CTX, flags) as server:
            with httpx.Client(base_url=server.url, timeout=ANSWER_S, trust_env=False) as http:
                expected = answer(http)
            bystander = Bystander(server)
            bystander.start()
            for part in parts:
                until = time.monotonic() + seconds / len(parts)
                attack = Attack(server, folder, expected, until, random.Random(seed))
                PARTS[part](attack)
                found[part] = attack.counts
            bystander.stop()
            found[OTHERS] = bystander.counts
            found[OTHERS]["slowest /health, ms"] = round(1e3 * bystander.slowest)
            found[OTHERS]["kB a minute more in the front"] = round(1e3 * bystander.megabytes_a_minute)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--parts", default=",".join(PARTS), help="which, with commas between")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    parts = args.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    found = attacked(parts, 60 * (args.hours * 60 or args.minutes), args.seed)
    table = Table("part", "what came of it", "times")
    for part, counts in found.items():
        for what, n in sorted(counts.items()):
            table.add_row(part, f"[red]{what}" if what in BAD and n else what, str(n))
    Console().print(table)
    n_bad = sum(counts[what] for counts in found.values() for what in BAD)
    print(json.dumps({"bad": n_bad, "seed": args.seed, **found}))
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
