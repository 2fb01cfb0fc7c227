"""A furnished box behind a real port, once for all tests of the client."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn

from appliance.app import Appliance
from appliance.client import Client
from appliance.settings import Settings
from tests.api.stand import copied


@dataclass(frozen=True)
class Port:
    """Where the box listens, and the keys to it."""

    url: str
    keys: dict[str, str]
    state_dir: Path

    def client(self, who: str, tenant: str | None = None) -> Client:
        return Client(self.url, self.keys[who], tenant=tenant)


@pytest.fixture(scope="session")
def port(
    tmp_path_factory: pytest.TempPathFactory, furnished: tuple[Path, dict[str, str]], ports: None
) -> Iterator[Port]:
    """The box in a thread of its own, with the server that the program uses."""
    state_dir = copied(furnished[0], tmp_path_factory.mktemp("served") / "state")
    appliance = Appliance(Settings(state_dir=state_dir))
    server = uvicorn.Server(uvicorn.Config(appliance.asgi, port=0, http="httptools", lifespan="on", log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    listening = threading.Event()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        listening.wait(0.01)
    address, number = server.servers[0].sockets[0].getsockname()[:2]
    yield Port(f"http://{address}:{number}", furnished[1], state_dir)
    appliance.begin_drain()
    server.should_exit = True
    thread.join(240)
    assert not thread.is_alive()
