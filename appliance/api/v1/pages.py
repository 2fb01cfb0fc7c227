"""Lists in pages: `limit` items, and a cursor that is the key of the last one. Stable while things come and go."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from appliance.wire.shape import Page

Item = TypeVar("Item")


def page(items: Sequence[Item], limit: int, key: Callable[[Item], str], shape: Callable[[Item], Any]) -> Page[Any]:
    """The first `limit` of `items`, which holds one more than `limit` where there are more."""
    cursor = key(items[limit - 1]) if len(items) > limit else None
    return Page(items=[shape(item) for item in items[:limit]], next_cursor=cursor)


def page_of_all(
    items: Sequence[Item], cursor: str, limit: int, key: Callable[[Item], str], shape: Callable[[Item], Any]
) -> Page[Any]:
    """The same from a whole list, sorted by `key`."""
    start = bisect_right(items, cursor, key=key)
    return page(items[start : start + limit + 1], limit, key, shape)
