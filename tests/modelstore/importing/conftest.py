"""Boxes with an importer that runs, and one that does not."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.modelstore.boxes import Parts, parts


@pytest.fixture
async def box(processes: None, tmp_path: Path) -> AsyncIterator[Parts]:
    """A box in `tmp_path / "state"` whose importer runs."""
    async with parts(tmp_path / "state") as made:
        yield made


@pytest.fixture
async def idle_box(tmp_path: Path) -> AsyncIterator[Parts]:
    """A box in `tmp_path / "state"` whose importer does not run."""
    async with parts(tmp_path / "state", runs=False) as made:
        yield made
