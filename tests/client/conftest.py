"""A furnished box behind a real port, once for all tests of the client."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from appliance.app import Appliance
from appliance.cli.main import app
from appliance.client import Client
from appliance.settings import Settings
from tests.api.stand import copied, serving


@dataclass(frozen=True)
class Port:
    """Where the box listens, and the keys to it."""

    url: str
    keys: dict[str, str]
    state_dir: Path

    def client(self, who: str, tenant: str | None = None) -> Client:
        return Client(self.url, self.keys[who], tenant=tenant)

    def invoke(self, who: str, *words: str) -> Result:
        """What becomes of a command."""
        return CliRunner().invoke(app, [*words, "--url", self.url, "--key", self.keys[who]])

    def run(self, who: str, *words: str) -> str:
        """What a command prints that goes well."""
        done = self.invoke(who, *words)
        assert done.exit_code == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def port(
    tmp_path_factory: pytest.TempPathFactory, furnished: tuple[Path, dict[str, str]], ports: None
) -> Iterator[Port]:
    """The box in a thread of its own, with the server that the program uses."""
    state_dir = copied(furnished[0], tmp_path_factory.mktemp("served") / "state")
    with serving(Appliance(Settings(state_dir=state_dir))) as url:
        yield Port(url, furnished[1], state_dir)
