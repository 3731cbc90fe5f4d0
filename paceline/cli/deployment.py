"""The replicas as an application of Ray Serve, for those who deploy them by a Serve configuration (KubeRay does):
`import_path: paceline.cli.deployment:application`. A front finds them with `--ray-app`."""

from __future__ import annotations

import shlex
from typing import Any

from paceline.cli import build
from paceline.cli.flags import parse
from paceline.cluster.ray_serve import application_of


def application(args: dict[str, str]) -> Any:
    """`serve` has the flags of `paceline serve` that say what the engine is, `replicas` how many of it."""
    return application_of(build.settings(parse(shlex.split(args["serve"]), "serve")), int(args["replicas"]))
