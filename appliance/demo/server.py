"""The real server as a child process: started, waited for, ended. Its log goes to a file in the state folder."""

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


@dataclass(slots=True)
class RunningServer:
    """A box that answers at `url`."""

    state_dir: Path
    process: subprocess.Popen[bytes]
    url: str = ""

    @property
    def key_file(self) -> Path:
        """The admin key."""
        return self.state_dir / "admin.key"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.state_dir / "server.log"

    def check(self) -> None:
        """Raises: CommandFailed when the server has ended by itself."""
        if self.process.poll() is not None:
            end = "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
            raise CommandFailed(f"the server ended with status {self.process.returncode}; it said:\n{end}")

    def wait(self, clock: Clock) -> None:
        """Until it is ready to answer, which is when it writes where it listens.

        Raises: CommandFailed when it does not come up.
        """
        address = self.state_dir / "address"
        deadline_ns = clock.now_ns() + START_S * NS_PER_S
        while not self.url:
            self.check()
            if clock.now_ns() > deadline_ns:
                raise CommandFailed(f"the server did not start within {START_S} s; see {self.log}")
            pause_s(0.05)
            self.url = address.read_text().strip() if address.exists() else ""


@contextmanager
def running_server(state_dir: Path, port: int, clock: Clock) -> Iterator[RunningServer]:
    """Start a box on `state_dir`, wait until it serves, end it with SIGTERM at the end.

    Raises: CommandFailed when it does not come up.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / "address").unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "appliance", "serve", "--state", str(state_dir), "--port", str(port)]
    with (state_dir / "server.log").open("ab") as log:
        # A session of its own: Ctrl-C goes to the demo alone, which then ends the devices before the server.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        server = RunningServer(state_dir, process)
        server.wait(clock)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
