"""Jobs are handed to workers one after the other: a worker that cannot begin with one offers itself again meanwhile,
and is served by who hands out already.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class HandingOut:
    """Keeps handing out from beginning anew inside itself. Event-loop thread only."""

    __slots__ = ("_is_under_way",)

    def __init__(self) -> None:
        self._is_under_way = False

    def all(self, following: Callable[[], T | None], give: Callable[[T], object]) -> bool:
        """Give what follows until there is nothing; False, and nothing done, where that is under way."""
        if self._is_under_way:
            return False
        self._is_under_way = True
        try:
            while (found := following()) is not None:
                give(found)
        finally:
            self._is_under_way = False
        return True
