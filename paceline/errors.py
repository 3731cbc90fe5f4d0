"""The exception tree: everything paceline raises on purpose.

PacelineError
├── ConfigError        a value that cannot be meant (negative context, top_p of 3, unknown option)
├── LibraryError       libllama is missing or not the version we speak to
├── ModelError         a model file that is missing, truncated, not GGUF, or not for us
│   ├── CannotWrite    a model that reads and makes embeddings
│   ├── HubError       a model that could not be fetched by its name
│   └── VocabMismatch  target and head disagree about a token
├── RequestError       one request cannot be served; the others go on
│   ├── PromptError    a prompt that is not text, or empty
│   ├── ContextFull    more tokens than the slot or the cache can hold
│   ├── NoNumbers      the model's logits for this text are NaN or infinite
│   └── QueueFull      too many requests are waiting already
├── DecodeError        libllama could not compute a batch
├── WorkerAway         a machine that holds a part of the model cannot be reached; it may come back
├── EngineDied         the engine's process ended, again and again
├── EngineFailed       a bug of ours in the engine, told across processes
└── EngineClosed       the engine was shut down
"""

from __future__ import annotations


class PacelineError(Exception):
    """Base of all errors a caller may want to catch."""


class ConfigError(PacelineError, ValueError):
    """A setting that cannot be meant."""


class LibraryError(PacelineError):
    """libllama is missing, broken, or another version."""


class ModelError(PacelineError):
    """A model file we cannot use."""


class CannotWrite(ModelError):
    """A model that has no memory to write with."""


class HubError(ModelError):
    """A repository or an address that gave us no model."""


class VocabMismatch(ModelError):
    """The draft model does not speak the target's tokens."""


class RequestError(PacelineError):
    """One request's trouble; the others go on."""


class PromptError(RequestError, ValueError):
    """A prompt that is empty or not text."""


class ContextFull(RequestError):
    """More tokens than fit: so many came, where so many have room, if that is known."""

    def __init__(self, message: str, n_prompt: int | None = None, n_ctx: int | None = None) -> None:
        super().__init__(message)
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx


class NoNumbers(RequestError):
    """Logits that are NaN or infinite; so is what the memory holds of the text."""


class QueueFull(RequestError):
    """Too many requests are waiting."""


class DecodeError(PacelineError):
    """libllama refused or failed to compute a batch."""


class WorkerAway(PacelineError):
    """An RPC worker that is not there, or says nothing. It may come back."""


class EngineClosed(PacelineError):
    """The engine was shut down."""


class EngineDied(PacelineError):
    """The engine's process ended and could not be helped up again."""


class EngineFailed(PacelineError):
    """Something in the engine that nobody foresaw."""


def named(kind: str, message: str) -> PacelineError:
    """An error that was raised elsewhere, by the name of its class."""
    found = globals().get(kind)
    if isinstance(found, type) and issubclass(found, PacelineError):
        return found(message)
    return EngineFailed(f"{kind}: {message}")
