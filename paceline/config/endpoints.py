"""Where an RPC worker listens, as people write it: host:port. Knows nothing of the line to it."""

from __future__ import annotations

import re

from paceline.errors import ConfigError

ENDPOINT = re.compile(r"([A-Za-z0-9._-]+):([0-9]{1,5})")
LAST_PORT = 65535


def endpoint_of(text: str) -> tuple[str, int]:
    """Host and port; a ValueError says what is wrong. ggml's RPC speaks IPv4 alone, and cuts at the first colon."""
    found = ENDPOINT.fullmatch(text)
    if not found or not 1 <= int(found[2]) <= LAST_PORT:
        raise ValueError(f"{text!r} is not HOST:PORT of an RPC worker, as in 192.168.1.20:50052 (IPv4 or a name)")
    return found[1], int(found[2])


def check_endpoint(text: str) -> None:
    try:
        endpoint_of(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None
