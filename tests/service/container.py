"""A machine booted by systemd in a container without a network.

Its files are those of this machine, or of the Debian in the folder that APPLIANCE_TEST_ROOT names: with systemd, dbus,
python3 and curl, as mmdebstrap makes one. What is written on top is gone at the end.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.clock import NS_PER_S, SystemClock, pause_s
from tests.harness.lacking import lacks_namespaces, lacks_root, lacks_tools

CLOCK = SystemClock()
ROOT = Path(os.environ.get("APPLIANCE_TEST_ROOT", "/"))
_NAME = "appliance-test"
_LANDLOCK = "landlock_create_ruleset landlock_add_rule landlock_restrict_self"
_BOOT_S = 180
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
"""Nothing of this machine's settings."""


def missing() -> str | None:
    """Why no machine can be booted here; None: one can."""
    tools = {"systemd-nspawn": "systemd-container", "nsenter": "util-linux", "pgrep": "procps"}
    if reason := lacks_root("boot a container") or lacks_tools(tools):
        return reason
    inside = ("usr/lib/systemd/systemd", "usr/bin/python3", "usr/bin/curl")
    absent = [path for path in inside if not (ROOT / path).exists()]
    if absent:
        return f"there is no {absent[0]} in {ROOT}"
    return lacks_namespaces("mount", "pid")


class Machine:
    """A booted container. What it runs sees no /tmp and no /run of this machine, but its other files."""

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
            env=_ENVIRONMENT,
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
def booted(folder: Path) -> Iterator[Machine]:
    """`folder`, which is not below /tmp, is for mount points; what else is in it is seen inside."""
    root = folder / "root"
    root.mkdir()
    subprocess.run(["mount", "--bind", str(ROOT), str(root)], check=True)
    order = [
        "systemd-nspawn",
        f"--directory={root}",
        "--volatile=overlay",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--link-journal=no",
        "--private-network",
        f"--machine={_NAME}-{os.getpid()}",
        f"--system-call-filter={_LANDLOCK}",
        *([] if Path("/") == ROOT else [f"--bind={folder}:{folder}:norbind"]),
    ]
    log = (folder / "console.log").open("w")
    nspawn: subprocess.Popen[bytes] | None = None
    try:
        nspawn = subprocess.Popen(order, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        machine = Machine(_leader_of(nspawn, folder / "console.log"))
        machine.until("systemctl is-system-running --wait | grep -E 'running|degraded'", _BOOT_S)
        yield machine
    finally:
        if nspawn is not None:
            _end(nspawn)
        log.close()
        subprocess.run(["umount", "--lazy", str(root)], check=True)
        root.rmdir()


def _end(nspawn: "subprocess.Popen[bytes]") -> None:
    """By its own shutdown; a container that hangs, or never booted, is killed with all that runs in it."""
    nspawn.send_signal(signal.SIGTERM)
    try:
        nspawn.wait(timeout=60)
    except subprocess.TimeoutExpired:
        for pid in _children(nspawn.pid):
            os.kill(pid, signal.SIGKILL)  # the first process of a space takes all others along
        nspawn.kill()
        nspawn.wait()


def _children(pid: int, *words: str) -> list[int]:
    found = subprocess.run(["pgrep", "--parent", str(pid), *words], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def _leader_of(nspawn: "subprocess.Popen[bytes]", console: Path) -> int:
    """The systemd inside."""
    end_ns = CLOCK.now_ns() + _BOOT_S * NS_PER_S
    while CLOCK.now_ns() < end_ns and nspawn.poll() is None:
        if found := _children(nspawn.pid, "--exact", "systemd"):
            return found[0]
        pause_s(0.1)
    raise AssertionError(f"the container did not boot:\n{console.read_text()}")
