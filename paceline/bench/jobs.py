"""What is measured: prompts of each category, as tokens, alone or as many at once as there are slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from paceline.bench.suite import SuitePrompt
from paceline.config import EngineParams, Settings
from paceline.errors import ConfigError
from paceline.library import Engine
from paceline.llama.shared import SharedModels

DRAFT_ROOM = 64
ROUND_TO = 256


@dataclass(frozen=True, slots=True)
class Job:
    """Prompts of one category that run at once, one on each slot."""

    number: int
    category: str
    prompts: tuple[tuple[int, ...], ...]

    @property
    def n_longest(self) -> int:
        return max(map(len, self.prompts))


def choose(
    prompts: Sequence[SuitePrompt], categories: Sequence[str], limit: int, n_slots: int, *, tail: bool = False
) -> list[list[SuitePrompt]]:
    """Groups of n_slots prompts, about `limit` prompts of each category (0 = all), the categories taking turns. From
    a category's `tail` they come last first: what settings were chosen on need not be what they are judged by."""
    by_category: dict[str, list[SuitePrompt]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt)
    unknown = set(categories) - set(by_category)
    if unknown:
        raise ConfigError(f"no category {sorted(unknown)[0]!r} in the prompts; there are {', '.join(by_category)}")
    order = -1 if tail else 1
    rows = [groups(by_category[name][::order], limit, n_slots) for name in categories or by_category]
    return [row[i] for i in range(max(map(len, rows))) for row in rows if i < len(row)]


def groups(prompts: Sequence[SuitePrompt], limit: int, n_slots: int) -> list[list[SuitePrompt]]:
    """Whole groups only: the last one is filled up with further prompts, then with the first ones again."""
    n_wanted = min(limit or len(prompts), len(prompts))
    endless = cycle(prompts)
    return [list(islice(endless, n_slots)) for _ in range(0, n_wanted, n_slots)]


def read(
    settings: Settings, chosen: Sequence[Sequence[SuitePrompt]], n_tokens: int, models: SharedModels
) -> tuple[Job, ...]:
    """The jobs as this model's tokens, without those too long for a slot."""
    plain = replace(
        settings, draft=None, context=replace(settings.context, n_ctx=ROUND_TO), engine=EngineParams(spec_types=())
    )
    with Engine.from_settings(plain, models=models) as engine:
        room = slot_room(settings, engine.info.n_ctx_train)
        jobs = [Job(i, group[0].category, tuple(chat(engine, p.text) for p in group)) for i, group in enumerate(chosen)]
    kept = tuple(job for job in jobs if job.n_longest + n_tokens <= room)
    if not kept:
        shortest = min(job.n_longest for job in jobs)
        raise ConfigError(f"no prompt fits: a slot holds {room} tokens, the shortest needs {shortest} + {n_tokens}")
    return kept


def chat(engine: Engine, text: str) -> tuple[int, ...]:
    """The tokens of a conversation that starts with this message."""
    return tuple(engine.tokenize(engine.chat_template.render([{"role": "user", "content": text}])))


def slot_room(settings: Settings, n_ctx_train: int) -> int:
    return settings.context.n_ctx // settings.engine.n_slots or n_ctx_train


def with_room(settings: Settings, jobs: Sequence[Job], n_tokens: int) -> Settings:
    """Every method has a context of its own: unless the user chose a size, one that just holds the longest job."""
    if settings.context.n_ctx:
        return settings
    n_slot = max(job.n_longest for job in jobs) + n_tokens + DRAFT_ROOM
    n_ctx = settings.engine.n_slots * (-(-n_slot // ROUND_TO) * ROUND_TO)
    return replace(settings, context=replace(settings.context, n_ctx=n_ctx))
