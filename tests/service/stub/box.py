"""A box of nothing but a database and two paths, for tests of the installer: `python -m appliance`.

`FORM` is how its database looks; an older one is brought to it, a newer one ends the start. `FAULT`: `dies` at the
start, `mute` answers 500, `ends` ends soon after the installer has asked it, and soon after each further start.
"""

import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FORM, FAULT = 1, ""  # the test writes others here
STATE = Path("/var/lib/edge-appliance")
ASKED = STATE / "asked"


class Paths(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        with (STATE / "heard").open("a") as file:
            file.write(f"{self.headers.get('Authorization')}\n")
        self.send_response({"/v2/health/ready": 500 if FAULT == "mute" else 200}.get(self.path, 401))
        self.end_headers()
        if FAULT == "ends" and self.path == "/v1/system":
            ASKED.touch()
            end_soon()

    def log_message(self, *words: object) -> None:
        """Nothing."""


def migrate(path: Path) -> None:
    """Raises: SystemExit for a newer database."""
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE IF NOT EXISTS alembic_version (version_num TEXT)")
        (form,) = database.execute(
            "SELECT coalesce(max(CAST(version_num AS INTEGER)), 0) FROM alembic_version"
        ).fetchone()
        if form > FORM:
            raise SystemExit("the database is newer")
        if form < FORM:
            database.execute("DELETE FROM alembic_version")
            database.execute("INSERT INTO alembic_version VALUES (?)", [str(FORM)])


def tell_systemd() -> None:
    """That it is ready, and lives; where it is systemd that has started it."""
    place = os.environ.get("NOTIFY_SOCKET")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        while place:
            line.sendto(b"READY=1\nWATCHDOG=1", place)
            time.sleep(1)  # noqa: TID251 - it is a program of its own


def end_soon() -> None:
    threading.Timer(1, lambda: os._exit(1)).start()


def main() -> None:
    if sys.argv[1:2] != ["serve"]:
        raise SystemExit(2)
    if FAULT == "dies":
        raise SystemExit(1)
    migrate(STATE / "appliance.db")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Paths)
    (STATE / "address").write_text(f"http://127.0.0.1:{server.server_port}\n")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if FAULT == "ends" and ASKED.exists():
        end_soon()
    threading.Thread(target=tell_systemd, daemon=True).start()
    print("READY", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
