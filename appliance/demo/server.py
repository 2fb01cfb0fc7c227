"""The real server as a child process: started, waited for, ended. Its log goes to a file in the state folder."""

import subprocess
import sys
from pathlib import Path

from appliance.clock import NS_PER_S, Clock, pause_s
from appliance.terminal.failure import CommandFailed

START_S = 60
STOP_S = 30


class Server:
    """A box on a state folder."""

    def __init__(self, state_dir: Path, port: int) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        self.key_file = state_dir / "admin.key"
        self.url = ""
        """Address of the box; empty until the box answers."""
        self._log = state_dir / "server.log"
        self._address = state_dir / "address"
        self._address.unlink(missing_ok=True)
        command = [sys.executable, "-P", "-m", "appliance", "serve", "--state", str(state_dir), "--port", str(port)]
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C goes to the demo alone, which then ends the devices before the server.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, clock: Clock) -> None:
        """Until it is ready to answer, which is when it writes where it listens.

        Raises: CommandFailed when it does not come up.
        """
        deadline_ns = clock.now_ns() + START_S * NS_PER_S
        while not self.url:
            self.check()
            if clock.now_ns() > deadline_ns:
                raise CommandFailed(f"the server did not start within {START_S} s; see {self._log}")
            pause_s(0.05)
            self.url = self._address.read_text().strip() if self._address.exists() else ""

    def check(self) -> None:
        """Raises: CommandFailed when the server has ended by itself."""
        if self._process.poll() is not None:
            end = "\n".join(self._log.read_text(errors="replace").splitlines()[-8:])
            raise CommandFailed(f"the server ended with status {self._process.returncode}; it said:\n{end}")

    def close(self) -> None:
        """End it with SIGTERM, and when it stays, with SIGKILL."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
