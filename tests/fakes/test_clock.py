"""Stories in virtual time: arguments reach them, and what they leave open fails."""

import asyncio

import pytest

from appliance.lab.loop import LeftOpen
from tests.fakes.clock import settle, story


@pytest.fixture
def word() -> str:
    return "fixture"


@pytest.mark.parametrize("number", [1, 2])
@story
async def test_story_receives_fixtures_and_parameters(word: str, number: int) -> None:
    await settle()
    assert word == "fixture"
    assert number in {1, 2}


def test_story_keeps_name_and_docstring() -> None:
    @story
    async def told() -> None:
        """Words."""

    assert (told.__name__, told.__doc__) == ("told", "Words.")


def test_story_that_leaves_a_task_open_fails() -> None:
    @story
    async def told() -> None:
        tasks.append(asyncio.create_task(asyncio.Event().wait(), name="left open"))

    tasks: list[asyncio.Task[bool]] = []
    with pytest.raises(LeftOpen, match="left open"):
        told()


def test_settle_on_a_real_loop_is_refused() -> None:
    with pytest.raises(AssertionError, match="wait for the condition"):
        asyncio.run(settle())
