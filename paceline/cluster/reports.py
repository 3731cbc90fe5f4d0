"""What several replicas say of themselves, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from paceline.cluster.link import Link
from paceline.engine.stats import DrafterStats
from paceline.process.base import Health, ReplicaHealth, SlotStatus, Status


def merged(statuses: Mapping[int, Status], n_waiting: int) -> Status:
    """By the replicas' numbers. `n_waiting` are with none of them yet. Slots are numbered through."""
    each = list(statuses.values())
    planned = [status.planned for status in each if status.planned]
    return Status(
        n_steps=sum(status.n_steps for status in each),
        n_busy=sum(status.n_busy for status in each),
        seconds=max((status.seconds for status in each), default=0.0),
        n_waiting=n_waiting + sum(status.n_waiting for status in each),
        slots=[slot for number, status in sorted(statuses.items()) for slot in numbered(number, status.slots)],
        drafters=drafters_of(each),
        planned=(sum(plain for plain, _ in planned), sum(actual for _, actual in planned)) if planned else None,
        why={f"replica {number}": status.why for number, status in statuses.items()},
    )


def numbered(number: int, slots: Sequence[SlotStatus]) -> list[SlotStatus]:
    first = number * len(slots)
    return [msgspec.structs.replace(slot, id=first + slot.id, replica=number) for slot in slots]


def drafters_of(statuses: Sequence[Status]) -> list[DrafterStats]:
    found: dict[str, DrafterStats] = {}
    for status in statuses:
        for stats in status.drafters:
            found[stats.name] = found[stats.name] + stats if stats.name in found else stats
    return list(found.values())


def health_of(replicas: Sequence[ReplicaHealth], links: Sequence[Link], reason: str) -> Health:
    """Requests are served as long as anybody is there."""
    healths = [link.pulse.health for link in links]
    return Health(
        ready=any(health.ready for health in healths),
        n_restarts=sum(replica.n_restarts for replica in replicas),
        reason=next((health.reason for health in healths if health.reason), reason),
        asleep=bool(healths) and all(health.asleep for health in healths),
        replicas=tuple(replicas),
    )


def replica_health(number: int, link: Link | None, counted: Mapping[str, int]) -> ReplicaHealth:
    """`counted` are this front's counters under that number, those of replicas before it too."""
    health = link.pulse.health if link else Health(ready=False)
    return ReplicaHealth(
        number=number,
        host=link.place.host if link else "",
        ready=health.ready,
        n_restarts=counted["restarts"] + health.n_restarts,
        n_running=len(link.live) if link else 0,
        n_requests=counted["requests"],
        n_prompt=counted["prompt"],
        n_cached=counted["cached"],
        n_predicted=counted["predicted"],
    )
