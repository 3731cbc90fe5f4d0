"""What is on this machine already: models of the hub's shared cache, by the names that `-hf` takes."""

from __future__ import annotations

from pathlib import Path

from paceline.hub.names import models, quant_of


def cached_models(folder: Path) -> list[str]:
    """USER/MODEL:QUANT for each, as llama-server lists them; USER/MODEL/FILE.gguf where a name says no quant."""
    found: dict[str, None] = {}
    for storage in sorted(folder.glob("models--*--*")):
        repo = storage.name.removeprefix("models--").replace("--", "/", 1)
        for snapshot in sorted(storage.glob("snapshots/*")):
            files = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf") if path.exists())
            for file in models(files):
                quant = quant_of(file)
                found[f"{repo}:{quant}" if quant else f"{repo}/{file}"] = None
    return list(found)
