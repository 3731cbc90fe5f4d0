"""Stands where llama.cpp's server tests expect llama-server: local files for repositories' names, then the real server.

The environment says what: UPSTREAM_COMMAND is the server's command, UPSTREAM_MODELS the files by name, both as JSON."""

from __future__ import annotations

import json
import os
import sys


def translated(arguments: list[str], files: dict[str, str], *, default: str | None) -> list[str]:
    """A command line that needs no network: `-m FILE` for `--hf-repo NAME --hf-file NAME`."""
    kept: list[str] = []
    named: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument in ("--hf-repo", "--hf-file", "--model-url"):
            named[argument] = next(rest)
        elif argument != "--offline":
            kept.append(argument)
    name = "/".join(value for key in ("--hf-repo", "--hf-file") if (value := named.get(key)))
    model = files.get(name) if named else default
    if named and model is None:
        sys.exit(f"no local file stands for {name or named}")
    threads = [] if "--threads" in kept else ["--threads", os.environ.get("UPSTREAM_THREADS", "1")]
    return [*(["-m", model] if model and "--model" not in kept else []), *kept, *threads]


if __name__ == "__main__":
    command: list[str] = json.loads(os.environ["UPSTREAM_COMMAND"])
    default = os.environ.get("UPSTREAM_DEFAULT_MODEL")
    arguments = translated(sys.argv[1:], json.loads(os.environ["UPSTREAM_MODELS"]), default=default)
    os.execv(command[0], [*command, *arguments])
