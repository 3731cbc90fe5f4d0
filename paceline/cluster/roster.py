"""What a front and Ray Serve's router in its process both know of one application: which replicas there are, and by
what they are chosen. Apart from the router, whose module Serve copies: what is here is there once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from paceline.cluster.messages import Place
from paceline.cluster.routing import Routes

OnReplicas = Callable[[Mapping[str, Place]], None]


class Roster:
    """Replicas by the names that Serve gave them."""

    def __init__(self, routes: Routes) -> None:
        self.places: dict[str, Place] = {}
        self._routes = routes
        self._on_replicas: OnReplicas | None = None

    def watch(self, on_replicas: OnReplicas) -> None:
        self._on_replicas = on_replicas
        on_replicas(self.places)

    def update(self, described: Mapping[str, Mapping[str, Any]]) -> None:
        self.places = {name: Place(**place) for name, place in described.items() if place}
        if self._on_replicas:
            self._on_replicas(self.places)

    def choose(self, hashes: Sequence[int], names: Collection[str]) -> str | None:
        """None where the front has a link to none of them."""
        linked = set(names) & self._routes.loads.keys()
        return self._routes.choose(hashes, linked) if linked else None


ROSTERS: dict[str, Roster] = {}
"""By application, in this process."""
