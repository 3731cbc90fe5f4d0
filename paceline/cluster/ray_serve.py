"""Replicas on Ray Serve: starts Ray on this machine or joins a cluster, deploys engines, follows where they are. Beside
its router the one file that knows Ray; `replicas.py` sets what Ray reads when it is imported."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import msgspec
import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from paceline.cluster.desk import Desk
from paceline.cluster.roster import ROSTERS, OnReplicas, Roster
from paceline.cluster.router import PrefixRouter
from paceline.cluster.routing import Routes
from paceline.config import Settings
from paceline.config.granted import usable_cores
from paceline.errors import ConfigError, EngineDied
from paceline.process.handle import LOGGERS
from paceline.process.supervisor import ChildEngine

LOOPBACK = "127.0.0.1"
HEALTH_PERIOD = 1.0  # seconds
UNBOUNDED = 2**20
"""Requests that Serve would let a replica have: they do not pass through it, and the queue is the front's."""
OBJECT_STORE = 80 * 2**20
"""Bytes, the least that Ray takes: nothing is kept there."""

log = logging.getLogger("paceline")


class ReplicaEngine:
    """What Ray Serve runs: an engine in a child process, and the desk where fronts find it."""

    def __init__(self, settings: bytes, host: str | None, log_levels: dict[str, int]) -> None:
        for name, level in log_levels.items():
            logging.getLogger(name).setLevel(level)
        wanted = msgspec.msgpack.decode(settings, type=Settings)
        self._desk = Desk(lambda on_progress: ChildEngine(wanted, on_progress), host or ray.util.get_node_ip_address())

    def record_replica_metadata(self) -> dict[str, object]:
        return asdict(self._desk.place)

    def check_health(self) -> None:
        """An engine that could not be opened is tried again, by another replica."""
        if self._desk.refused:
            raise RuntimeError(self._desk.refused.message)

    def __del__(self) -> None:
        if desk := getattr(self, "_desk", None):
            desk.close()


def application_of(settings: Settings, n_replicas: int, host: str | None = None) -> Any:
    """Not yet running. Where everything is on one machine, `host` is its loopback address."""
    n_gpus = ray.cluster_resources().get("GPU", 0.0) / n_replicas if ray.is_initialized() else 0.0
    n_cores = 1 if host else settings.context.n_threads or 1
    deployment = serve.deployment(
        ReplicaEngine,
        name="engine",
        num_replicas=n_replicas,
        max_ongoing_requests=UNBOUNDED,
        health_check_period_s=HEALTH_PERIOD,
        graceful_shutdown_timeout_s=2.0,
        ray_actor_options={"num_cpus": n_cores, "num_gpus": n_gpus if n_gpus < 1 else int(n_gpus)},
        request_router_config=RequestRouterConfig(request_router_class=PrefixRouter),
    )
    log_levels = {name: logging.getLogger(name).getEffectiveLevel() for name in LOGGERS}
    return deployment.bind(msgspec.msgpack.encode(settings), host, log_levels)


class RayPlacement:
    """N replicas of one application. Without a `name` it is called after its settings: fronts of the same settings
    share it, and the last to leave takes it down. One with a name stays."""

    def __init__(self, settings: Settings, n_replicas: int, address: str | None, name: str | None) -> None:
        self.routes = Routes(settings.engine.n_slots)
        self._settings = settings if address else shared_out(settings, n_replicas)
        self._n_replicas = n_replicas
        self._address = address
        self._stays = name is not None
        self.app = name or f"paceline-{hashlib.sha256(msgspec.msgpack.encode(self._settings)).hexdigest()[:12]}"
        self._roster = ROSTERS[self.app] = Roster(self.routes)
        self._handle: Any = None

    def start(self) -> None:
        logging.getLogger("ray.serve").setLevel(logging.ERROR)  # it warns of probes that nobody needs here
        folder = self._connected().address_info["session_dir"]
        try:
            self._find_or_deploy()
        except RuntimeError as error:
            why = f"Ray Serve could not start the replicas: {error}; its log is in {folder}/logs/serve"
            raise EngineDied(why) from None

    def _connected(self) -> Any:
        """A Ray of our own is tried twice: on a busy machine it may not be up within the half minute that it waits."""
        for last in (True,) if self._address else (False, True):
            try:
                return self._connect()
            except Exception as error:  # of all sorts
                ray.shutdown()
                line = str(error).strip().partition("\n")[0]
                if last:
                    raise ConfigError(f"Ray on {self._address or 'this machine'} cannot be reached: {line}") from None
                log.warning("Ray did not start, trying once more: %s", line)
        raise AssertionError

    def _connect(self) -> Any:
        if self._address:
            return ray.init(self._address, log_to_driver=False, logging_level=logging.ERROR)
        return ray.init(
            "local",  # also where this machine is part of a cluster
            num_cpus=self._n_replicas,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE,
            _node_ip_address=LOOPBACK,
        )

    def _find_or_deploy(self) -> None:
        serve.start(proxy_location="Disabled")
        if self.app in serve.status().applications:
            log.info("using the replicas of %s, which are there already", self.app)
            self._handle = serve.get_app_handle(self.app)
        else:
            wanted = application_of(self._settings, self._n_replicas, None if self._address else LOOPBACK)
            self._handle = serve.run(wanted, name=self.app, route_prefix=None)

    async def watch(self, on_replicas: OnReplicas) -> None:
        self._roster.watch(on_replicas)
        self._first = asyncio.create_task(self.choose(()))  # only who asks is told

    async def choose(self, hashes: Sequence[int]) -> str:
        """The request itself does not pass through Serve: nothing has to be reserved there."""
        async with self._handle.choose_replica(hashes=hashes, _reserve=False) as selection:
            return str(selection.replica_id)

    async def leave(self, *, last: bool) -> None:
        """A Ray that was started here ends with everything on it."""
        ROSTERS.pop(self.app, None)
        self._first.cancel()
        with suppress(Exception):
            if not self._address:
                await serve.shutdown_async()
            elif last and not self._stays:
                await asyncio.to_thread(serve.delete, self.app)

    def stop(self) -> None:
        ray.shutdown()


def shared_out(settings: Settings, n_replicas: int) -> Settings:
    """On one machine nobody takes all of its cores."""
    if settings.context.n_threads:
        return settings
    n_threads = max(1, usable_cores() // n_replicas)
    return replace(
        settings,
        context=replace(settings.context, n_threads=n_threads),
        draft_context=replace(settings.draft_context, n_threads=settings.draft_context.n_threads or n_threads),
    )
