"""A furnished box for every test that asks for `stand`: made once, copied for each."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from appliance.runtime.decisions import log
from tests.api.stand import Stand, StandWith, copied, stand_on


@pytest.fixture
def stand_with(furnished: tuple[Path, dict[str, str]], tmp_path: Path) -> StandWith:
    """For tests that want settings of their own, or a restart."""

    def begin(**settings: Any) -> AbstractAsyncContextManager[Stand]:
        if not (tmp_path / "state").exists():
            copied(furnished[0], tmp_path / "state")
        return stand_on(tmp_path / "state", furnished[1], **settings)

    return begin


@pytest.fixture
async def stand(stand_with: StandWith, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stand]:
    """A running box of the test's own, which waits for no other decisions before it writes one."""
    monkeypatch.setattr(log, "GATHER_S", 0.0)
    async with stand_with() as made:
        yield made
