"""Ids of the cases of a table: what a case has in it, where pytest would only count (`headers0`)."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import partial

_CHARACTERS_MAX = 60


def readable(value: object) -> str | None:
    """Return an id for a collection, a dataclass, an error or a partial; None for what pytest names well itself, and
    for what has no text that is equal in every run.
    """
    if isinstance(value, str | bytes | type):
        return None
    text = _text(value)
    if text is None:
        return None
    text = text.encode("unicode_escape").decode("ascii")  # as pytest writes text: an id goes into the environment
    return text if len(text) <= _CHARACTERS_MAX else text[: _CHARACTERS_MAX - 1] + "~"


def _text(value: object) -> str | None:
    if isinstance(value, BaseException):
        return f"{type(value).__name__} {value}".strip()
    if isinstance(value, partial):
        return _joined(value.func.__name__, value.args, value.keywords)
    if is_dataclass(value) and not isinstance(value, type):
        held = {one.name: (getattr(value, one.name), one.default) for one in fields(value)}
        stated = {name: own for name, (own, default) in held.items() if repr(own) != repr(default)}
        return _joined(type(value).__name__, (), stated)
    if isinstance(value, Mapping):
        return _joined("", (), {str(key): one for key, one in value.items()}) or "empty"
    if isinstance(value, Set):
        return _joined("", sorted(value, key=repr), {}) or "empty"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | range):
        return _joined("", value, {}) or "empty"
    return None


def _joined(name: str, values: Sequence[object], named: Mapping[str, object]) -> str:
    parts = [*map(_part, values), *(f"{key}={_part(one)}" for key, one in named.items())]
    return " ".join(filter(None, (name, ",".join(parts))))


def _part(value: object) -> str:
    """A value within another: its own text where that is short and equal in every run."""
    text = _text(value)
    if text is not None:
        return text
    if isinstance(value, type) or callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    shown = str(value)
    return type(value).__name__ if " at 0x" in shown or "\n" in shown else shown
