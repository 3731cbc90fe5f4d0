"""Opening several engines as one. Ray is imported here, when it is wanted: it reads its environment at that moment."""

from __future__ import annotations

import os
import secrets
from importlib.util import find_spec

from paceline.cluster.fleet import Fleet
from paceline.config import Settings
from paceline.errors import ConfigError
from paceline.process.base import OnProgress

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",  # it is asked, and answers, on the fleet's loop
}
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
"""One machine: Ray listens on the loopback address, as it does on systems with a firewall that asks; and since Serve's
replicas do so on every address, nobody is heard without a word that only these processes know."""


def check_ray() -> None:
    """Without importing it."""
    if find_spec("ray") is None:
        raise ConfigError("--replicas needs Ray, which is not installed: pip install 'paceline[ray]'")


def open_replicas(
    settings: Settings, on_progress: OnProgress, *, n_replicas: int, address: str | None = None, name: str | None = None
) -> Fleet:
    """`address` is a Ray cluster's; without one a Ray is started on this machine, and ends with the engines. Replicas
    of that `name` are used where there are some, and stay."""
    check_ray()
    alone = ALONE | {"RAY_AUTH_TOKEN": secrets.token_hex()}
    for variable, value in (ENVIRONMENT if address else ENVIRONMENT | alone).items():
        os.environ.setdefault(variable, value)
    try:
        from paceline.cluster.ray_serve import RayPlacement
    except ImportError as error:
        raise ConfigError(f"Ray Serve is not complete ({error}): pip install 'paceline[ray]'") from None
    return Fleet(RayPlacement(settings, n_replicas, address, name), n_replicas, on_progress)
