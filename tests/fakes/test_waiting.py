"""Waiting for a condition ends with it, or with an error that names it."""

import asyncio

import pytest

from tests.fakes.clock import story
from tests.fakes.waiting import until


@story
async def test_waiting_returns_when_the_condition_holds() -> None:
    loop = asyncio.get_running_loop()
    is_set = asyncio.Event()
    begun_s = loop.time()
    loop.call_later(50, is_set.set)
    await until(is_set.is_set, every_s=1)
    assert loop.time() - begun_s == 50


@story
async def test_waiting_sees_a_condition_that_holds_for_one_turn() -> None:
    states = iter([False] * 1000 + [True] + [False] * 1000)
    await until(lambda: next(states), every_s=0)
    assert len(list(states)) == 1000


@story
async def test_waiting_past_its_time_fails_with_the_condition() -> None:
    def never_true() -> bool:
        return False

    with pytest.raises(AssertionError, match=r"not so within 3 s: .*never_true"):
        await until(never_true, 3)
