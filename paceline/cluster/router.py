"""Ray Serve's request router, deciding by `Routes`. Serve makes it from its class alone, in the process of whoever has
a handle: what both know is found under the application's name."""

from __future__ import annotations

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from paceline.cluster import roster


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """Chooses one replica, where the request's prefix is cached: those that the front has no link to do not count."""

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        self._tell()

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        self._tell()

    def _tell(self) -> None:
        if known := roster.ROSTERS.get(self.app_name):
            known.update({id.unique_id: replica.replica_metadata for id, replica in self.curr_replicas.items()})

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Serve asks again, after a pause, where there is none."""
        known = roster.ROSTERS.get(self.app_name)
        if known is None or pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True
        able = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        chosen = known.choose(pending_request.kwargs.get("hashes", ()), able)
        return [[able[chosen]]] if chosen else []
