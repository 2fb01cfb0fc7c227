#!/usr/bin/env python3
"""As much of systemctl as the installer uses, over one box: starting waits for its READY, a box that ends by itself is
counted and begun anew, and units that were started with --no-block run in the background.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PREFIX = Path("/opt/edge-appliance")
RUN = Path("/run/stub")
"""Files `pid` (of the box), `wanted` (it should run), `restarts`."""
USER = "edge-appliance"
UNIT = Path("/etc/systemd/system/edge-appliance.service")


def alive() -> bool:
    try:
        os.kill(int((RUN / "pid").read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def stop() -> None:
    (RUN / "wanted").unlink(missing_ok=True)
    if alive():
        os.kill(int((RUN / "pid").read_text()), signal.SIGTERM)
    while alive():
        time.sleep(0.01)  # noqa: TID251 - it is a program of its own


def start() -> int:
    """0 once it is ready."""
    if alive():
        return 0
    (RUN / "wanted").touch()
    reader, writer = os.pipe()
    detached([sys.executable, __file__, "watch", str(writer)], keep=writer)
    os.close(writer)
    with os.fdopen(reader) as said:
        return 0 if said.readline().strip() == "READY" else 1


def detached(order: list[str], keep: int | None = None, **environment: str) -> None:
    """Outlives whoever asked, and holds none of their files."""
    settings = {key: value for key, value in os.environ.items() if key not in ("BASH_ENV", "KILL_AT")}
    with (RUN / "log").open("a") as log:
        subprocess.Popen(
            order,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=() if keep is None else (keep,),
            env=settings | environment,
        )


def watch(writer: int) -> None:
    """Run the box, and again when it ends by itself; five times at most."""
    for _ in range(5):
        order = [str(PREFIX / "current/.venv/bin/python"), "-P", "-m", "appliance", "serve"]
        box = subprocess.Popen(order, stdout=subprocess.PIPE, user=USER, group=USER, extra_groups=[])
        assert box.stdout is not None
        (RUN / "pid").write_text(str(box.pid))
        line = box.stdout.readline()
        if writer >= 0:
            os.write(writer, line or b"FAILED\n")
            os.close(writer)
            writer = -1
        status = box.wait()
        if not (RUN / "wanted").exists():
            return
        count = subprocess.run(
            [PREFIX / "current/scripts/install", "--count-crash"],
            env=os.environ | {"SERVICE_RESULT": "exit-code", "EXIT_STATUS": str(status)},
            check=False,
        )
        assert count.returncode == 0
        (RUN / "restarts").write_text("2")
        time.sleep(0.1)  # noqa: TID251
        if not (RUN / "wanted").exists():
            return
    (RUN / "pid").write_text("")


def main(words: list[str]) -> int:
    RUN.mkdir(parents=True, exist_ok=True)
    verb, *rest = words
    names = [word for word in rest if not word.startswith("--")]
    match verb, names:
        case "watch", [writer]:
            watch(int(writer))
        case "start", ["edge-appliance-upgrade.service"]:
            if (PREFIX / "unproved").exists() or (PREFIX / "going-back").exists():
                detached([str(PREFIX / "upgrade/scripts/install"), "--finish"])
        case "start", ["edge-appliance-rollback.service"]:
            detached([str(PREFIX / "current/scripts/install"), "--rollback-if-young"])
        case "start", _:
            return start()
        case "stop", _:
            stop()
        case "restart", _:
            stop()
            return start()
        case "is-active", _:
            return 0 if alive() else 3
        case "show", _:
            wanted = rest[0].removeprefix("--property=")
            print({"NRestarts": "2", "Result": "exit-code", "ExecMainStatus": "1"}[wanted])
    return 0


sys.exit(main(sys.argv[1:]))
