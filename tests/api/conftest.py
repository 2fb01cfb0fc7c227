"""A furnished box for every test that asks for `stand`: made once, copied for each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from appliance.runtime.decisions import log
from tests.api.stand import FurnishedWith, Stand, StandWith, copied, stand_on


@pytest.fixture(scope="module")
def furnished_with(furnished: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> FurnishedWith:
    """For modules whose tests all need more than is furnished."""

    def furnish(more: Callable[[Stand], Awaitable[None]]) -> Path:
        state_dir = copied(furnished[0], tmp_path_factory.mktemp("more") / "state")

        async def define() -> None:
            async with stand_on(state_dir, furnished[1]) as stand:
                await more(stand)

        asyncio.run(define())
        return state_dir

    return furnish


@pytest.fixture(scope="module")
def furnished_state(furnished: tuple[Path, dict[str, str]]) -> Path:
    """The state folder that each test has a copy of; a module may have another with the same keys."""
    return furnished[0]


@pytest.fixture
def stand_with(furnished_state: Path, furnished: tuple[Path, dict[str, str]], tmp_path: Path) -> StandWith:
    """For tests that want settings of their own, or a restart."""

    def begin(**settings: Any) -> AbstractAsyncContextManager[Stand]:
        if not (tmp_path / "state").exists():
            copied(furnished_state, tmp_path / "state")
        return stand_on(tmp_path / "state", furnished[1], **settings)

    return begin


@pytest.fixture
async def stand(stand_with: StandWith, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stand]:
    """A running box of the test's own, which waits for no other decisions before it writes one."""
    monkeypatch.setattr(log, "GATHER_S", 0.0)
    async with stand_with() as made:
        yield made
