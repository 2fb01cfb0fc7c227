"""The real server as a child process: started, waited for, ended. Its log goes to a file in the state folder."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.clock import NS_PER_S, Clock, pause_s
from appliance.terminal.failure import CommandFailed

START_S = 60
STOP_S = 30


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A box that answers at `url`."""

    url: str
    state_dir: Path
    process: subprocess.Popen[bytes]

    @property
    def key_file(self) -> Path:
        """The admin key."""
        return self.state_dir / "admin.key"

    def check(self) -> None:
        """Raises: CommandFailed when the server has ended by itself."""
        if self.process.poll() is not None:
            raise CommandFailed(
                f"the server ended with status {self.process.returncode}; the end of {_log(self.state_dir)}:\n"
                f"{_tail(_log(self.state_dir))}"
            )


@contextmanager
def running_server(state_dir: Path, port: int, clock: Clock) -> Iterator[RunningServer]:
    """Start a box on `state_dir`, wait until it serves, end it with SIGTERM at the end.

    Raises: CommandFailed when it does not come up.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / "address").unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "appliance", "serve", "--state", str(state_dir), "--port", str(port)]
    with _log(state_dir).open("ab") as log:
        # A session of its own: Ctrl-C goes to the demo alone, which then ends the devices before the server.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        yield RunningServer(_url(process, state_dir, clock), state_dir, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(process: subprocess.Popen[bytes], state_dir: Path, clock: Clock) -> str:
    """Where it listens: the box writes this once it is ready to answer."""
    address = state_dir / "address"
    deadline_ns = clock.now_ns() + START_S * NS_PER_S
    while clock.now_ns() < deadline_ns:
        if process.poll() is not None:
            raise CommandFailed(f"the server did not start; it said:\n{_tail(_log(state_dir))}")
        if address.exists() and (url := address.read_text().strip()):
            return url
        pause_s(0.05)
    raise CommandFailed(f"the server did not start within {START_S} s; see {_log(state_dir)}")


def _log(state_dir: Path) -> Path:
    return state_dir / "server.log"


def _tail(path: Path) -> str:
    """The last lines of a log."""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - 16_384))
        return "\n".join(log.read().decode(errors="replace").splitlines()[-8:])
