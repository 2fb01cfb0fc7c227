"""Lists in pages: up to `limit` items, and a cursor that is the key of the last one. An item that comes or goes moves
no other one to another page.

The rows of a page are made one by one, in their owner's parts of turns of the event loop (`Turns.collect`). The answer
goes past the framework, which would check and write all rows again in one turn.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any, TypeVar

import orjson
from starlette.responses import Response

from appliance.api.http.turns import Turns
from appliance.wire.shape import Shape

Item = TypeVar("Item")
SORTED_AT_ONCE = 500
"""Items that are sorted in one step."""


async def page(
    turns: Turns,
    owner: str,
    items: Sequence[Item],
    limit: int,
    key: Callable[[Item], str],
    shape: Callable[[Item], Shape | None],
) -> Response:
    """Answer with the first `limit` of `items`, which holds one item more where there is a next page.

    `shape` returns None for an item that was deleted while the page was made.
    """
    cursor = key(items[limit - 1]) if len(items) > limit else None
    rows = await written(turns, owner, map(shape, items[:limit]))
    return document({"items": rows, "next_cursor": cursor})


async def page_of_all(
    turns: Turns,
    owner: str,
    items: Sequence[Item],
    cursor: str,
    limit: int,
    key: Callable[[Item], str],
    shape: Callable[[Item], Shape | None],
) -> Response:
    """Answer with a page of a whole list, sorted by `key`."""
    start = bisect_right(items, cursor, key=key)
    return await page(turns, owner, items[start : start + limit + 1], limit, key, shape)


async def written(turns: Turns, owner: str, rows: Iterable[Shape | None]) -> orjson.Fragment:
    """Return the JSON of a list of rows, without those that are None, made in the owner's parts of turns."""
    texts = (b"" if row is None else row.model_dump_json().encode() for row in rows)
    return orjson.Fragment(await turns.json_list(owner, texts))


async def in_order(turns: Turns, owner: str, items: Iterable[Item], key: Callable[[Item], Any]) -> list[Item]:
    """Return the items in order, sorted in the owner's parts of turns."""

    def steps() -> Iterator[list[Item]]:
        left, parts = iter(items), []
        while part := sorted(islice(left, SORTED_AT_ONCE), key=key):
            parts.append(part)
            yield []
        for item in merge(*parts, key=key):
            yield [item]

    return list(chain.from_iterable(await turns.collect(owner, steps())))


def document(value: Mapping[str, Any] | orjson.Fragment) -> Response:
    """Answer with JSON; lists in it may be `written` already."""
    return Response(orjson.dumps(value), media_type="application/json")
