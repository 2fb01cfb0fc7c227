"""Boxes that the tests of one module share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.cli.main import main
from tests.api.stand import copied
from tests.e2e.server import Server, running_server

Run = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, processes: None, ports: None) -> Iterator[Server]:
    """Started with the first test of the module, stopped with its last."""
    with running_server(tmp_path_factory.mktemp("box") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def furnished_server(
    furnished: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory, ports: None
) -> Iterator[Server]:
    """The same with the tenants and models of a stand: `digits` of harbour, and `adding`, which all may call."""
    with running_server(copied(furnished[0], tmp_path_factory.mktemp("box") / "state")) as running:
        yield running


@pytest.fixture
def appliance(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command with the box's state folder; returns standard output, asserts the exit status."""
    monkeypatch.setenv("APPLIANCE_STATE_DIR", str(server.state_dir))

    def run(*arguments: str, status: int = 0) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(arguments)
        said = capsys.readouterr()
        assert (end.value.code or 0) == status, said.err
        return said.err if status else said.out

    return run
