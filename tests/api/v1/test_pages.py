"""Lists in pages."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response

from appliance.api.http.turns import PART_NS, STEP_NS, Turns
from appliance.api.v1.pages import page, page_of_all
from appliance.clock import NS_PER_MS
from appliance.wire.shape import Shape
from tests.fakes.clock import run_virtual, story
from tests.fakes.hand_clock import HandClock


class Row(Shape):
    name: str


def row(name: str) -> Row:
    return Row(name=name)


def shown(answer: Response) -> Any:
    assert answer.media_type == "application/json"
    return json.loads(bytes(answer.body))


@given(st.sets(st.text('abÄ"', min_size=1, max_size=4), max_size=30), st.integers(1, 7))
def test_pages_give_every_item_once_and_in_order(names: set[str], limit: int) -> None:
    """Following the cursors visits all, whatever the size of a page; only the last has none."""
    items, seen, cursor = sorted(names), list[str](), ""
    turns = Turns(HandClock())

    async def one_page() -> Any:
        return shown(await page_of_all(turns, "harbour", items, cursor, limit, str, row))

    while True:
        one = run_virtual(one_page)
        assert len(one["items"]) <= limit
        seen += [each["name"] for each in one["items"]]
        if one["next_cursor"] is None:
            break
        assert len(one["items"]) == limit
        cursor = one["next_cursor"]
    assert seen == items


class Pages:
    """Pages of 500 rows, a tenth of a millisecond each; counts the rows that a turn of the loop makes."""

    def __init__(self) -> None:
        self._clock = HandClock()
        self._turns = Turns(self._clock)
        self._turn = 0
        self._by_turn: Counter[int] = Counter()

    async def ask(self, owners: Sequence[str]) -> list[Any]:
        """Return a page for each owner, all asked for at once."""
        ticking = asyncio.create_task(self._tick())
        names = [f"{number:04}" for number in range(501)]
        pages = (page(self._turns, owner, names, 500, str, self._row) for owner in owners)
        found = [shown(one) for one in await asyncio.gather(*pages)]
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
        return found

    @property
    def most_in_a_turn_ns(self) -> float:
        return max(self._by_turn.values()) * NS_PER_MS / 10

    def _row(self, name: str) -> Row:
        self._clock.pass_s(0.0001)
        self._by_turn[self._turn] += 1
        return row(name)

    async def _tick(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop


@story
async def test_pages_asked_by_many_connections_leave_room_in_loop_turns() -> None:
    """64 pages of 500 rows for one tenant, then for two: a turn makes rows of each within its part."""
    for owners in (["harbour"], ["harbour", "museum"]):
        pages = Pages()
        found = await pages.ask(owners * (64 // len(owners)))
        assert [(len(one["items"]), one["next_cursor"]) for one in found] == 64 * [(500, "0499")]
        assert pages.most_in_a_turn_ns <= len(owners) * (PART_NS + STEP_NS)


@story
async def test_item_that_goes_while_its_page_is_made_is_left_out() -> None:
    """The cursor is that of the whole page."""
    answer = await page(Turns(HandClock()), "harbour", "abcd", 3, str, lambda name: None if name == "b" else row(name))
    assert shown(answer) == {"items": [{"name": "a"}, {"name": "c"}], "next_cursor": "c"}
