"""A real box as a process of its own on a free port, for tests that need one: `with running_server(folder) as
server`.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.client import Client
from appliance.clock import NS_PER_S, SystemClock, pause_s

START_S = 240
STOP_S = 120
PATIENT = {
    "APPLIANCE_QUEUES__WAIT_MS_MAX": "120000",
    "APPLIANCE_QUEUES__TIMEOUT_MS": "120000",
    "APPLIANCE_MEMORY__WAIT_MS_MAX": "120000",
}
"""A box that is used to a quick machine refuses on a busy one what would wait for ten seconds."""


@dataclass(slots=True)
class Server:
    """A running box; `url` changes when it is started again."""

    state_dir: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes]
    url: str
    port: int = 0
    """0: any."""

    @property
    def admin_key(self) -> str:
        """The key of the first start."""
        return (self.state_dir / "admin.key").read_text().strip()

    def client(self, key: str | None = None, tenant: str | None = None) -> Client:
        """A client with the admin key, or another."""
        return Client(self.url, key or self.admin_key, tenant=tenant, ca=_authority(self.state_dir))

    def log(self) -> str:
        """What it has logged so far, over all its starts."""
        return (self.state_dir / "server.log").read_text(errors="replace")

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL: what a power cut does to a process."""
        self.process.kill()
        self.process.wait()

    @contextmanager
    def kept_port(self) -> Iterator[None]:
        """Keep other programs from the port that the box had, until it listens there again; it is not running now."""
        self.port = int(self.url.rsplit(":", 1)[1])
        with socket.socket() as keeper:
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the box's own: only one may listen
            keeper.bind(("127.0.0.1", self.port))
            yield

    def start_again(self) -> None:
        """The same state folder, a new process, another port unless it was named."""
        self.process, self.url = _start(self.state_dir, self.environment, self.port)


def brought(client: Client, path: Path, name: str, task: str = "tensor", **more: Any) -> None:
    """Import a model, to the end."""
    job = client.upload_model(path, name, task, **more)
    assert [one.state for one in client.follow_job(job.id)][-1] == "done"


@contextmanager
def running_server(state_dir: Path, port: int = 0, /, **environment: str) -> Iterator[Server]:
    """Start a box on `state_dir`, wait until it is ready, stop it at the end. `environment`: `APPLIANCE_…` settings."""
    process, url = _start(state_dir, environment, port)
    server = Server(state_dir, environment, process, url, port)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def _start(state_dir: Path, environment: dict[str, str], port: int) -> tuple[subprocess.Popen[bytes], str]:
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / "address").unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "appliance", "serve", "--state", str(state_dir), "--port", str(port)]
    with (state_dir / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**_clean(os.environ), **PATIENT, "APPLIANCE_LOG__FORMAT": "json", **environment},
        )
    try:
        return process, _ready_url(process, state_dir)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _clean(environment: "os._Environ[str]") -> dict[str, str]:
    """Without settings that happen to be set where the tests run."""
    return {name: value for name, value in environment.items() if not name.startswith("APPLIANCE_")}


def _authority(state_dir: Path) -> Path | None:
    """The box's own certificate, when it made one."""
    certificate = state_dir / "tls" / "cert.pem"
    return certificate if certificate.exists() else None


def _ready_url(process: subprocess.Popen[bytes], state_dir: Path) -> str:
    clock, address = SystemClock(), state_dir / "address"
    deadline_ns = clock.now_ns() + START_S * NS_PER_S
    while clock.now_ns() < deadline_ns and process.poll() is None:
        url = address.read_text().strip() if address.exists() else ""
        if url:
            with Client(url, ca=_authority(state_dir)) as client:
                if client.is_ready():
                    return url
        pause_s(0.05)
    log = (state_dir / "server.log").read_text(errors="replace")
    raise AssertionError(f"the server did not become ready (status {process.poll()}):\n{log[-4000:]}")
