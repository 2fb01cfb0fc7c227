"""A furnished box for every test that asks for `stand`: made once, copied for each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from appliance.runtime.decisions import log
from tests.api.stand import Stand, copied, running


@pytest.fixture
async def stand(
    furnished: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stand]:
    """A running box of the test's own, which waits for no other decisions before it writes one."""
    monkeypatch.setattr(log, "GATHER_S", 0.0)
    state_dir = copied(furnished[0], tmp_path / "state")
    async with running(state_dir) as appliance:
        made = Stand(appliance, state_dir, furnished[1])
        yield made
        await made.close()
