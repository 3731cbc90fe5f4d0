"""How settings are checked. Knows nothing but the error."""

from __future__ import annotations

from paceline.errors import ConfigError


def check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Refuses NaN too: every comparison with it is false."""
    check(low <= value <= high, f"{name} must be between {low:g} and {high:g}, got {value}")


def check_choice(name: str, value: str | None, allowed: tuple[str | None, ...]) -> None:
    check(value in allowed, f"unknown {name} {value!r}; choose from {', '.join(filter(None, allowed))}")
