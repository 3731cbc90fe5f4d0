"""Ray Serve's request router, deciding by `Routes`. Serve makes it from its class alone, in the process of whoever has
a handle: what both know is found under the application's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from paceline.cluster.messages import Place
from paceline.cluster.routing import Routes


class Roster:
    """Which replicas Serve says there are, and whom they are chosen by."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.places: dict[str, Place] = {}
        self.on_replicas: Callable[[Mapping[str, Place]], None] = lambda places: None

    def update(self, places: dict[str, Place]) -> None:
        self.places = places
        self.on_replicas(places)


ROSTERS: dict[str, Roster] = {}
"""By application, in this process."""


def metadata_of(place: Place) -> dict[str, object]:
    return asdict(place)


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """Chooses one replica, where the request's prefix is cached: those that the front has no link to do not count."""

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        self._tell()

    def on_replica_actor_died(self, replica_id: object) -> None:
        super().on_replica_actor_died(replica_id)
        self._tell()

    def _tell(self) -> None:
        roster = ROSTERS.get(self.app_name)
        if roster:
            found = {id.unique_id: replica.replica_metadata for id, replica in self.curr_replicas.items()}
            roster.update({id: Place(**metadata) for id, metadata in found.items() if metadata})

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Serve asks again, after a pause, where there is none."""
        roster = ROSTERS.get(self.app_name)
        if roster is None or pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True
        able = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        linked = able.keys() & roster.routes.loads.keys()
        if not linked:
            return []
        return [[able[roster.routes.choose(pending_request.kwargs.get("hashes", ()), linked)]]]
