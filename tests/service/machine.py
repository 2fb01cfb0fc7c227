"""This machine once more, booted by systemd in a container: its own files below, and what is written on top is gone at
the end.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.clock import NS_PER_S, SystemClock, pause_s

CLOCK = SystemClock()
_NAME = "appliance-test"
_LANDLOCK = "landlock_create_ruleset landlock_add_rule landlock_restrict_self"
_BOOT_S = 60


def missing() -> str | None:
    """Why no machine can be booted here; None: one can."""
    if os.geteuid() != 0:
        return "only root can boot a container"
    return None if shutil.which("systemd-nspawn") else "there is no systemd-nspawn (Debian's package systemd-container)"


class Machine:
    """A booted container. What it runs sees no /tmp and no /run of this machine, but all its other files."""

    def __init__(self, leader: int) -> None:
        self.leader = leader

    def run(self, command: str, *, timeout_s: float = 600, check: bool = True) -> str:
        """What a shell command says, both streams together."""
        done = subprocess.run(
            ["nsenter", "--target", str(self.leader), "--all", "bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout.strip()

    def until(self, command: str, seconds: float) -> float:
        """After how many seconds a command succeeds."""
        start_ns = CLOCK.now_ns()
        while (past_s := (CLOCK.now_ns() - start_ns) / NS_PER_S) < seconds:
            if self.run(f"{{ {command}; }} >/dev/null 2>&1 && echo yes || true") == "yes":
                return past_s
            pause_s(0.2)
        raise AssertionError(f"{command}: not within {seconds} s")


@contextmanager
def booted(folder: Path, *, network: bool = True) -> Iterator[Machine]:
    """`folder` is for mount points. Without a `network` it has a loopback of its own, and nothing else."""
    root = folder / "root"
    root.mkdir()
    subprocess.run(["mount", "--bind", "/", str(root)], check=True)
    order = [
        "systemd-nspawn",
        f"--directory={root}",
        "--volatile=overlay",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--link-journal=no",
        f"--machine={_NAME}-{os.getpid()}",
        f"--system-call-filter={_LANDLOCK}",
        *([] if network else ["--private-network"]),
    ]
    log = (folder / "console.log").open("w")
    nspawn = subprocess.Popen(order, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        machine = Machine(_leader_of(nspawn, folder / "console.log"))
        machine.until("systemctl is-system-running --wait | grep -E 'running|degraded'", _BOOT_S)
        yield machine
    finally:
        nspawn.send_signal(signal.SIGTERM)
        try:
            nspawn.wait(timeout=60)
        except subprocess.TimeoutExpired:
            nspawn.kill()
            nspawn.wait()
        log.close()
        subprocess.run(["umount", "--lazy", str(root)], check=True)
        root.rmdir()


def _leader_of(nspawn: "subprocess.Popen[bytes]", console: Path) -> int:
    """The systemd inside."""
    end_ns = CLOCK.now_ns() + _BOOT_S * NS_PER_S
    while CLOCK.now_ns() < end_ns:
        found = subprocess.run(
            ["pgrep", "--parent", str(nspawn.pid), "--exact", "systemd"], capture_output=True, text=True, check=False
        )
        if found.stdout:
            return int(found.stdout.split()[0])
        if nspawn.poll() is not None:
            break
        pause_s(0.1)
    raise AssertionError(f"the container did not boot:\n{console.read_text()}")
