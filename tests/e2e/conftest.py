"""A box that the tests of one module share."""

from collections.abc import Iterator

import pytest

from tests.e2e.server import Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Started with the first test of the module, stopped with its last."""
    with running_server(tmp_path_factory.mktemp("box") / "state") as running:
        yield running
