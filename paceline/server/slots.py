"""What the slots are doing, for people and for the page; and keeping a slot's memory in a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from paceline.engine.slot import Slot
from paceline.engine.stats import DrafterStats
from paceline.server.errors import ApiError, not_found, not_supported
from paceline.server.native_reply import settings_json
from paceline.server.service import Service

FILE_NAME = re.compile(r"[\w][\w.+@ -]{0,254}")


def slots_json(service: Service) -> list[dict[str, Any]]:
    """GET /slots."""
    return [slot_json(service, slot) for slot in service.engine.core.slots]


def slot_json(service: Service, slot: Slot) -> dict[str, Any]:
    request = slot.request
    job = next((r.job for r in list(service.running) if request and r.generation.request is request), None)
    n_written = slot.n_generated if request else 0
    return {
        "id": slot.seq,
        "id_task": id(request) % 2**31 if request else -1,
        "n_ctx": service.engine.n_ctx,
        "n_tokens": len(slot.tokens),
        "speculative": bool(service.engine.drafter_stats()),
        "is_processing": request is not None,
        "params": settings_json(job) if job else {},
        "next_token": {
            "has_next_token": request is not None,
            "n_remain": -1 if not request or request.max_tokens is None else request.max_tokens - n_written,
            "n_decoded": n_written,
        },
    }


def stats_json(service: Service) -> dict[str, Any]:
    """GET /paceline/stats: what the page shows."""
    engine = service.engine
    return {
        "model": service.model_name,
        "slots": [
            {"id": slot.seq, "busy": slot.busy, "n_tokens": len(slot.tokens), "n_ctx": engine.n_ctx}
            for slot in engine.core.slots
        ],
        "n_waiting": len(engine.core.queue),
        "speed": round(service.metrics.tokens_per_second, 2),
        "drafters": [drafter_json(stats) for stats in engine.drafter_stats()],
        "speedup": None if engine.speedup is None else round(engine.speedup, 3),
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
        raise not_found(f"there is no saved slot {name!r}")
    (n_tokens, n_bytes), ms = timed(lambda: service.engine.restore_slot(check_slot(service, slot), str(path)))
    return {"id_slot": slot, "filename": name, "n_restored": n_tokens, "n_read": n_bytes, "timings": {"restore_ms": ms}}


def erase(service: Service, slot: int) -> dict[str, Any]:
    return {"id_slot": slot, "n_erased": service.engine.erase_slot(check_slot(service, slot))}


def check_slot(service: Service, slot: int) -> int:
    if not 0 <= slot < service.engine.n_slots:
        raise not_found(f"there is no slot {slot}; slots are 0 to {service.engine.n_slots - 1}")
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
