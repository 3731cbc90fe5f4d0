"""Found by a child process whose PYTHONPATH begins here: a machine is away as long as the file AWAY is there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import WorkerAway
from paceline.llama.rpc import Workers


def join(self: Workers, endpoints: Sequence[str]) -> list[int]:
    if Path(os.environ["AWAY"]).exists():
        raise WorkerAway("the RPC worker there:1 cannot be reached")
    return []


Workers.join = join  # type: ignore[method-assign]
