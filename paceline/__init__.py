"""paceline: speculative decoding for GGUF models. Same words, sooner."""

from paceline.config import SamplingParams, Settings, SpeculativeParams
from paceline.engine.request import GrammarSource as Grammar
from paceline.engine.request import Timings, Token
from paceline.errors import PacelineError
from paceline.generation import Chunk, Finish, Generation, Piece
from paceline.library import Engine

__version__ = "0.1.0"

__all__ = [
    "Chunk",
    "Engine",
    "Finish",
    "Generation",
    "Grammar",
    "PacelineError",
    "Piece",
    "SamplingParams",
    "Settings",
    "SpeculativeParams",
    "Timings",
    "Token",
    "__version__",
]
