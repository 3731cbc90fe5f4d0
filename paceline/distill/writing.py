"""The target writes text: many rows in lockstep, each along its script. Nothing waits for the host between tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from zlib import crc32

import numpy as np
import torch

from paceline.distill.compiling import faster
from paceline.distill.network import KeyValues
from paceline.distill.script import Script, ScriptWriter, TextKind
from paceline.distill.target import Teacher
from paceline.distill.texts import Rows, TextFolder
from paceline.errors import ConfigError

LOG_MIN_P = float(np.log(0.05))
MOST_ROWS = 4096
ROWS_ON_CPU = 64
N_ROUNDS = 5
"""Into which the time is divided on a CPU."""
N_TIMED = 3
MEMORY_SHARE = 0.6
"""Of the memory that is free, for keys and values."""
TINY = 1e-20


class Places:
    """Where rows stand in their scripts, on the device: the turn, and how many of its tokens are there."""

    def __init__(self, script: Script, ends: list[int], n_vocab: int, device: str) -> None:
        def table(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(device)

        self.given = table(np.append(script.given, np.int32(0)).astype(np.int64))
        self.start, self.length = table(script.start), table(script.length)
        self.kind, self.limit, self.then = table(script.kind), table(script.limit), table(script.then)
        self.temperature, self.recorded = table(script.temperature), table(script.recorded)
        self.is_end = torch.zeros(n_vocab, dtype=torch.bool, device=device)
        self.is_end[torch.tensor(ends, device=device)] = True
        n_rows = len(script.start)
        self.turn = torch.zeros(n_rows, 1, dtype=torch.int64, device=device)
        self.done = torch.zeros(n_rows, dtype=torch.int64, device=device)

    def of_turn(self, table: torch.Tensor) -> torch.Tensor:
        """What it says of every row's turn."""
        return table.gather(1, self.turn)[:, 0]

    def step(self, drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The tokens that come next, and who wrote them: those given, as long as there are any, else those drawn. The
        end of a turn is written by whoever ended it, in the template's words."""
        own = self.done - self.of_turn(self.length)
        kind = self.of_turn(self.kind)
        is_free = own >= 0
        ended = is_free & self.is_end[drawn]
        over = ended | (is_free & (own >= self.of_turn(self.limit)))
        self.turn = torch.where(over[:, None], self.then.gather(1, self.turn), self.turn)
        self.done = torch.where(over, 0, self.done)
        is_given = over | ~is_free
        given = self.given[self.of_turn(self.start) + torch.where(is_given, self.done, 0)]
        is_recorded = self.done >= self.of_turn(self.length) - self.of_turn(self.recorded)
        self.done = self.done + 1
        written_by = torch.where(is_given & ~ended & ~is_recorded, int(TextKind.GIVEN), kind)
        return torch.where(is_given, given, drawn), written_by


def draw(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """One token a row: the largest of logits and noise, among those not much less likely than the likeliest."""
    logits = logits.float()
    floor = logits.amax(-1, keepdim=True) + temperature[:, None] * LOG_MIN_P
    noise = -(-torch.rand_like(logits).clamp(min=TINY).log()).clamp(min=TINY).log()
    noisy = logits + temperature[:, None] * noise
    return torch.where(logits < floor, -torch.inf, noisy).argmax(-1)


class Writer:
    """Rounds of so many rows of so many tokens. The memory is taken once."""

    def __init__(self, teacher: Teacher, scripts: ScriptWriter, n_rows: int, *, seed: int = 0) -> None:
        self.teacher = teacher
        self.scripts = scripts
        self.length = scripts.length
        self.n_rows = n_rows
        self.seed = seed
        teacher.hasten(teacher.device)
        self.draw = faster(draw, teacher.device)
        self.memory: KeyValues = teacher.memory(n_rows, self.length, teacher.dtype)

    def round(self, name: str, on_token: Callable[[int], object] = lambda n: None) -> Rows:
        """The same for the same name and seed."""
        teacher, device = self.teacher, self.teacher.device
        script = self.scripts.script(self.n_rows, f"{self.seed} {name}")
        places = Places(script, self.scripts.material.ends, teacher.shape.n_vocab, device)
        torch.manual_seed(crc32(f"{self.seed} {name}".encode()))
        tokens = torch.zeros(self.n_rows, self.length, dtype=torch.int64, device=device)
        kinds = torch.zeros(self.n_rows, self.length, dtype=torch.uint8, device=device)
        tokens[:, 0], _ = places.step(torch.zeros_like(tokens[:, 0]))
        self.memory.clear()
        with torch.no_grad(), teacher.precision():
            for position in range(1, self.length):
                hidden = teacher(tokens[:, position - 1 : position], self.memory).hidden[:, 0]
                temperature = places.of_turn(places.temperature)
                drawn = self.draw(teacher.logits(hidden), temperature)
                tokens[:, position], kinds[:, position] = places.step(drawn)
                on_token(position)
            teacher.check_finite(hidden)
        return Rows(tokens.int().cpu().numpy(), kinds.cpu().numpy())


def rows_in_time(teacher: Teacher, length: int, seconds: float) -> int:
    """For a CPU, where every row takes its time: so many that the time is enough for several rounds."""
    alone, all_of_them = (seconds_a_token(teacher, length, n) for n in (1, ROWS_ON_CPU))
    if 2 * alone * length > seconds:  # one to learn from, one to measure by
        raise ConfigError(
            f"the target takes {alone * length:.0f} seconds for a text of {length} tokens here, and --minutes leaves "
            f"{seconds:.0f} for writing; give it more, a shorter --length, or a GPU"
        )
    each = max(TINY, all_of_them - alone) / (ROWS_ON_CPU - 1)
    return 1 + int(min(ROWS_ON_CPU - 1, max(0.0, (seconds / N_ROUNDS / length - alone) / each)))


def seconds_a_token(teacher: Teacher, length: int, n_rows: int) -> float:
    """Halfway along a row, where attention costs what it does on average."""
    memory = teacher.memory(n_rows, length, teacher.dtype)
    tokens = torch.zeros(n_rows, 1, dtype=torch.int64, device=teacher.device)
    found = []
    with torch.no_grad(), teacher.precision():
        for _ in range(N_TIMED):
            memory.stand_at(length // 2)
            begun = time.monotonic()
            teacher.logits(teacher(tokens, memory).hidden[:, 0])
            found.append(time.monotonic() - begun)
    return min(found)


def rows_that_fit(teacher: Teacher, length: int, seconds: float) -> int:
    """As many as the device's memory holds, at most 4,096; on a CPU what the time allows."""
    if not teacher.device.startswith("cuda"):
        return rows_in_time(teacher, length, seconds)
    shape = teacher.shape
    free, _ = torch.cuda.mem_get_info()
    n_bytes = torch.finfo(teacher.dtype).bits // 8
    per_row = 2 * shape.n_layer * shape.n_head_kv * shape.head_dim * length * n_bytes + 16 * shape.n_vocab
    fitting = int(free * MEMORY_SHARE) // per_row
    if fitting < 1:
        raise ConfigError(f"no row of {length} tokens fits into the device's memory; try --length {length // 2}")
    return min(MOST_ROWS, int(1 << (fitting.bit_length() - 1)))


def write(
    writer: Writer,
    folder: TextFolder,
    *,
    seconds: float,
    n_tokens: int | None = None,
    on_progress: Callable[[float, int], None] = lambda share, n: None,
) -> int:
    """Round after round until the time is over or so many tokens are there; what an earlier run wrote counts. Gives
    the number of tokens in the folder."""
    sizes = [folder.size(name) for name in folder.rounds]
    written, spent = sum(n for n, _ in sizes), sum(took for _, took in sizes)

    def told(begun: float, n: int = 0) -> float:
        n_now = written + n * writer.n_rows
        share = (spent + time.monotonic() - begun) / seconds if n_tokens is None else n_now / n_tokens
        on_progress(min(1.0, share), n_now)
        return share

    begun = time.monotonic()
    while told(begun) < 1 or not written:
        name = f"{len(folder.rounds):05d}"
        rows = writer.round(name, partial(told, begun))
        took = time.monotonic() - begun
        folder.save(name, rows, took)
        written, spent, begun = written + rows.tokens.size, spent + took, time.monotonic()
    return written
