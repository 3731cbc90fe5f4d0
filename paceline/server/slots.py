"""What the slots are doing, for people and for the page; and keeping a slot's memory in a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from paceline.engine.request import Timings
from paceline.engine.stats import DrafterStats
from paceline.process.base import SlotStatus, Status
from paceline.server.errors import ApiError, not_supported
from paceline.server.native_reply import settings_json
from paceline.server.service import Choice, Service

FILE_NAME = re.compile(r"[\w][\w.+@ -]{0,254}")


def slots_json(service: Service, status: Status, owner: bytes) -> list[dict[str, Any]]:
    """GET /slots. What a request asked for is shown to its owner."""
    running = {choice.generation.request.id: choice for choice in list(service.running) if choice.owner == owner}
    return [slot_json(service, slot, running.get(slot.request or -1)) for slot in status.slots]


def slot_json(service: Service, slot: SlotStatus, choice: Choice | None) -> dict[str, Any]:
    busy = slot.request is not None
    n_max = choice.wanted.max_tokens if choice else None
    timings = choice.generation.timings if choice else Timings()
    return {
        "id": slot.id,
        **({} if slot.replica is None else {"replica": slot.replica}),
        "id_task": slot.request if busy else -1,
        "n_ctx": service.engine.n_ctx,
        "n_tokens": slot.n_tokens,
        "speculative": bool(service.engine.info.drafters),
        "is_processing": busy,
        "n_prompt_tokens": slot.n_tokens - slot.n_generated,
        "n_prompt_tokens_processed": timings.prompt_n,
        "n_prompt_tokens_cache": timings.cache_n,
        **({"params": settings_json(choice.wanted)} if choice else {}),
        "next_token": [
            {
                "has_next_token": busy,
                "has_new_line": choice is not None and choice.has_new_line,
                "n_remain": -1 if n_max is None else n_max - slot.n_generated,
                "n_decoded": slot.n_generated,
            }
        ],
    }


def stats_json(service: Service, status: Status) -> dict[str, Any]:
    """GET /paceline/stats: what the page shows."""
    n_ctx, speedup = service.engine.n_ctx, status.speedup
    return {
        "model": service.model_name,
        "slots": [
            {"id": slot.id, "busy": slot.request is not None, "n_tokens": slot.n_tokens, "n_ctx": n_ctx}
            for slot in status.slots
        ],
        "n_waiting": status.n_waiting,
        "speed": round(service.metrics.tokens_per_second, 2),
        "n_predicted": service.metrics.totals["predicted_n"],
        "drafters": [drafter_json(stats) for stats in status.drafters],
        "speedup": None if speedup is None else round(speedup, 3),
    }


def drafter_json(stats: DrafterStats) -> dict[str, Any]:
    return {
        "name": stats.name,
        "n_calls": stats.n_calls,
        "n_drafts": stats.n_drafts,
        "n_tokens": stats.n_tokens,
        "n_accepted": stats.n_accepted_tokens,
        "acceptance_by_position": [round(share, 4) for share in stats.acceptance_by_position()],
    }


# -- files


def save(service: Service, slot: int, name: str) -> dict[str, Any]:
    path = slot_file(service, name)
    (n_tokens, n_bytes), ms = timed(lambda: service.engine.save_slot(check_slot(service, slot), str(path)))
    return {"id_slot": slot, "filename": name, "n_saved": n_tokens, "n_written": n_bytes, "timings": {"save_ms": ms}}


def restore(service: Service, slot: int, name: str) -> dict[str, Any]:
    path = slot_file(service, name)
    if not path.is_file():
        raise ApiError(400, f"there is no saved slot {name!r}", param="filename")
    (n_tokens, n_bytes), ms = timed(lambda: service.engine.restore_slot(check_slot(service, slot), str(path)))
    return {"id_slot": slot, "filename": name, "n_restored": n_tokens, "n_read": n_bytes, "timings": {"restore_ms": ms}}


def erase(service: Service, slot: int) -> dict[str, Any]:
    return {"id_slot": slot, "n_erased": service.engine.erase_slot(check_slot(service, slot))}


def check_slot(service: Service, slot: int) -> int:
    if not 0 <= slot < service.engine.n_slots:
        raise ApiError(400, f"invalid slot {slot}; slots are 0 to {service.engine.n_slots - 1}")
    return slot


def slot_file(service: Service, name: str) -> Path:
    folder = service.params.slot_save_path
    if folder is None:
        raise not_supported("this server does not save slots; start it with --slot-save-path FOLDER")
    if not FILE_NAME.fullmatch(name):
        raise ApiError(400, "a file name has letters, digits and . _ - only, and no folders", param="filename")
    return Path(folder) / name


def timed(work: Callable[[], tuple[int, int]]) -> tuple[tuple[int, int], float]:
    start = perf_counter()
    result = work()
    return result, round(1e3 * (perf_counter() - start), 3)
