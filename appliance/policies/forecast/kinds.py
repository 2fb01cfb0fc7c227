"""One entry of a registry of forecasters: how one is made from a history, and how one that was kept is made again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

FitT = TypeVar("FitT")
ForecasterT = TypeVar("ForecasterT")


@dataclass(frozen=True, slots=True)
class Kind(Generic[FitT, ForecasterT]):
    """`fit` learns a forecaster; `read` makes it from what its `to_json` gave ("" where it has none) and raises
    ValueError for anything else.
    """

    fit: FitT
    read: Callable[[str], ForecasterT]


class Named(Protocol):
    """What every forecaster has. One that was trained has `to_json`, too."""

    @property
    def name(self) -> str: ...


def written(forecaster: Named) -> str:
    """Its name, and after a space what it has learnt."""
    to_json: Callable[[], str] | None = getattr(forecaster, "to_json", None)
    return forecaster.name if to_json is None else f"{forecaster.name} {to_json()}"


def read(text: str, kinds: Mapping[str, Kind[Any, ForecasterT]]) -> ForecasterT:
    """The inverse of `written`; the first kind, which needs no history, where the text is no forecaster of these."""
    first, *_ = kinds.values()
    name, _, state = text.partition(" ")
    try:
        return kinds.get(name, first).read(state)
    except (ValueError, OverflowError, RecursionError):  # of a damaged text: numbers without end, lists without bottom
        return first.read("")
