"""paceline: speculative decoding for GGUF models. Same words, sooner.

Names are fetched when they are first used: `import paceline` loads neither libllama nor numpy.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.config import SamplingParams, Settings, SpeculativeParams
    from paceline.engine.request import Grammar, Timings, Token
    from paceline.errors import (
        ConfigError,
        ContextFull,
        DecodeError,
        EngineClosed,
        EngineDied,
        LibraryError,
        ModelError,
        PacelineError,
        PromptError,
        QueueFull,
        RequestError,
        VocabMismatch,
    )
    from paceline.generation import Chunk, Finish, Generation, Piece
    from paceline.library import Engine

__version__ = "0.1.0"

__all__ = [
    "Chunk",
    "ConfigError",
    "ContextFull",
    "DecodeError",
    "Engine",
    "EngineClosed",
    "EngineDied",
    "Finish",
    "Generation",
    "Grammar",
    "LibraryError",
    "ModelError",
    "PacelineError",
    "Piece",
    "PromptError",
    "QueueFull",
    "RequestError",
    "SamplingParams",
    "Settings",
    "SpeculativeParams",
    "Timings",
    "Token",
    "VocabMismatch",
    "__version__",
]

HOMES = {
    "Engine": "paceline.library",
    **dict.fromkeys(("Chunk", "Finish", "Generation", "Piece"), "paceline.generation"),
    **dict.fromkeys(("Grammar", "Timings", "Token"), "paceline.engine.request"),
    **dict.fromkeys(("SamplingParams", "Settings", "SpeculativeParams"), "paceline.config"),
}
"""Where a name lives that is not an error's."""

# Hidden from type checkers, which would take any name for granted.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """https://peps.python.org/pep-0562/"""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'paceline' has no attribute {name!r}")
        found = getattr(import_module(HOMES.get(name, "paceline.errors")), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
