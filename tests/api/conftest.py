"""A furnished box for every test that asks for `stand`: made once, copied for each."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from appliance import log
from appliance.demo.zoo import toys
from tests.api.stand import Stand, copied, furnish, running


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> toys.Digits:
    """The model that is really trained."""
    return toys.digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def furnished(
    tmp_path_factory: pytest.TempPathFactory, digits: toys.Digits, processes: None
) -> tuple[Path, dict[str, str]]:
    """A state folder with tenants, keys and models, and the keys."""
    log.configure("error", "console")
    state_dir = tmp_path_factory.mktemp("furnished") / "state"
    return state_dir, asyncio.run(furnish(state_dir, digits))


@pytest.fixture
async def stand(furnished: tuple[Path, dict[str, str]], tmp_path: Path) -> AsyncIterator[Stand]:
    """A running box of the test's own."""
    state_dir = copied(furnished[0], tmp_path / "state")
    async with running(state_dir) as appliance:
        made = Stand(appliance, state_dir, furnished[1])
        yield made
        await made.close()
