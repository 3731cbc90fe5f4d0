"""What a template reads of what it is given: values that note their use. Knows jinja; nothing of chats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from paceline.text.jinja import Sandbox


class Trace:
    """Whether a value was read, and whether as a list or by a test for texts."""

    used = False
    as_list = False
    tested_for_text = False


class TracedText(Trace, str):
    """Not a list of characters: no template means that."""

    def __iter__(self) -> Iterator[str]:
        self.used = self.as_list = True
        raise TypeError("a text is not a list")


class TracedList(Trace, list[Any]):
    def __iter__(self) -> Iterator[Any]:
        self.used = self.as_list = True
        return super().__iter__()


class TracedDict(Trace, dict[str, Any]):
    def __iter__(self) -> Iterator[str]:
        self.used = self.as_list = True
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name, default)
        note(found)
        return found

    def items(self) -> Any:
        self._values_are_used()
        return super().items()

    def values(self) -> Any:
        self._values_are_used()
        return super().values()

    def _values_are_used(self) -> None:
        for value in super().values():
            note(value)


def traced(value: Any) -> Any:
    """The same value, all through."""
    if isinstance(value, str):
        return TracedText(value)
    if isinstance(value, Mapping):
        return TracedDict({name: traced(inner) for name, inner in value.items()})
    if isinstance(value, Sequence):
        return TracedList([traced(inner) for inner in value])
    return value


def untraced(value: Any) -> Any:
    if isinstance(value, TracedDict):
        return {name: untraced(inner) for name, inner in dict.items(value)}
    return [untraced(inner) for inner in list.__iter__(value)] if isinstance(value, TracedList) else value


def inside(value: Any, *path: Any) -> Any:
    """A value within, without a note of it."""
    for step in path:
        value = dict.__getitem__(value, step) if isinstance(value, dict) else list.__getitem__(value, step)
    return value


def note(value: Any, *, deep: bool = False) -> None:
    if not isinstance(value, Trace):
        return
    value.used = True
    if deep and isinstance(value, TracedDict):
        for inner in dict.values(value):
            note(inner, deep=True)
    if deep and isinstance(value, TracedList):
        for inner in list.__iter__(value):
            note(inner, deep=True)


class TracingSandbox(Sandbox):
    def __init__(self) -> None:
        super().__init__()
        filters: dict[str, Any] = dict(self.filters)
        self.filters = {name: _noting(work, _filter_marks(name)) for name, work in filters.items()}
        tests: dict[str, Any] = dict(self.tests)
        self.filters["tojson"] = _whole(self.filters["tojson"])
        self.tests = {name: _noting(work, _test_marks(name)) for name, work in tests.items()}

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self._read(obj, super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Trace) and isinstance(argument, int | slice):
            obj.as_list = True
        return self._read(obj, super().getitem(obj, argument))

    def _read(self, obj: Any, found: Any) -> Any:
        note(obj)
        note(found)
        return found


def _filter_marks(name: str) -> Callable[[Trace], None]:
    def marks(value: Trace) -> None:
        note(value, deep=name == "string")
        value.as_list |= name == "selectattr"

    return marks


def _test_marks(name: str) -> Callable[[Trace], None]:
    def marks(value: Trace) -> None:
        note(value)
        value.tested_for_text |= name == "string"

    return marks


def _whole(tojson: Callable[..., str]) -> Callable[..., str]:
    def noting(value: Any, *args: Any, **options: Any) -> str:
        note(value, deep=True)
        return tojson(untraced(value), *args, **options)

    return noting


def _noting(work: Callable[..., Any], marks: Callable[[Trace], None]) -> Callable[..., Any]:
    """A filter or test that marks what it is applied to, which some get after the environment."""

    @wraps(work)
    def noting(*args: Any, **options: Any) -> Any:
        for value in args[:2]:
            if isinstance(value, Trace):
                marks(value)
                break
        return work(*args, **options)

    return noting


TRACING = TracingSandbox()
