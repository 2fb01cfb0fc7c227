"""Code that took a guard over finds nothing: each attempt is made in a process confined as a guard is."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.confinement import landlock
from appliance.confinement.available import available
from appliance.runtime.processors.guard.folder import new_folder
from tests.harness.lacking import lacks_root, skip_if

pytestmark = pytest.mark.usefixtures("processes")

PROBE = """
import ctypes, json, os, resource, signal, socket, sys
import encodings.ascii, encodings.latin_1
from appliance.runtime.processors.guard.limits import GROUP, Home, enter

if os.fork():  # as the fork server: one thread goes on
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
folder, secret, victim = sys.argv[1], sys.argv[2], int(sys.argv[3])
home = Home(folder, GROUP + 1, os.getppid(), 64 << 20)
entered = enter(home)
libc = ctypes.CDLL(None, use_errno=True)

def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")

ATTEMPTS = {
    "open a secret": lambda: open(secret).read(),
    "list the disk": lambda: os.listdir("/home" if entered.root else "/work"),
    "open another's memory": lambda: open(f"/proc/{victim}/mem", "rb"),
    "open another's environment": lambda: open(f"/proc/{victim}/environ", "rb").read(),
    "open another's files": lambda: os.listdir(f"/proc/{victim}/fd"),
    "write a file": lambda: open(folder + "/new", "w"),
    "write a file at its root": lambda: open("/new", "w"),
    "kill": lambda: os.kill(victim, signal.SIGKILL),
    "kill its group": lambda: os.killpg(os.getpgid(victim), signal.SIGKILL),
    "signal by descriptor": lambda: os.pidfd_open(victim),
    "ptrace": lambda: call(101, 16, victim, 0, 0),
    "process_vm_readv": lambda: call(310, victim, None, 0, None, 0, 0),
    "fork": os.fork,
    "execute": lambda: os.execv(sys.executable, [sys.executable, "-c", "pass"]),
    "a TCP socket": lambda: socket.socket(),
    "a local socket": lambda: socket.socket(socket.AF_UNIX),
    "a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "a socket pair": socket.socketpair,
    "io_uring": lambda: call(425, 1, bytes(120)),
    "a user namespace": lambda: call(272, 0x10000000),
    "a namespace by clone": lambda: call(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0),
    "a mount": lambda: call(165, b"none", b"/", b"tmpfs", 0, 0),
    "leave the root": lambda: os.chroot("."),
    "another's priority": lambda: os.setpriority(os.PRIO_PROCESS, victim, 5),
    "another's limits": lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (8, 8)),
    "another's processors": lambda: os.sched_setaffinity(victim, {0}),
    "become root": lambda: call(105, 0),
    "leave its group": os.setsid,
    "change a mode": lambda: os.chmod(folder, 0o777),
    "change an owner": lambda: os.chown(folder, 0, 0),
    "an attribute": lambda: os.setxattr(folder, "user.x", b"y"),
    "bpf": lambda: call(321, 0, None, 0),
    "perf": lambda: call(298, bytes(128), 0, -1, -1, 0),
    "keys": lambda: call(250, 0, 0, 0),
    "raise a hard limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)),
}
done = []
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
        done.append(name)
    except (OSError, ValueError):
        pass
report = {
    "done": done, "environment": dict(os.environ), "user": os.getuid(),
    "files": entered.confinement.files, "calls": entered.confinement.calls,
    "capabilities": entered.confinement.capabilities,
}
os.write(1, json.dumps(report).encode())
os._exit(0)
"""


@pytest.mark.usefixtures("processes", "ports")
@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="numbers of x86-64")
@pytest.mark.skipif(not landlock.version(), reason="the kernel has no Landlock")
@pytest.mark.parametrize("user", ["own", "same"])
def test_confined_guard_process_fails_every_escape_attempt(tmp_path: Path, user: str) -> None:
    """As a user of its own where the service is root, and as the user of the service elsewhere."""
    skip_if(lacks_root("give a guard a user of its own") if user == "own" else None)
    secret = tmp_path / "admin.key"
    secret.write_text("secret")
    folder = new_folder(tmp_path / "scratch")
    script = PROBE if user == "own" else PROBE.replace("entered = enter", "os.geteuid = lambda: 1\nentered = enter")
    with subprocess.Popen(["sleep", "infinity"]) as victim, socket.socket():
        probe = subprocess.run(
            [sys.executable, "-c", script, str(folder), str(secret), str(victim.pid)],
            capture_output=True,
            timeout=240,
            check=False,
        )
        is_alive = victim.poll() is None
        victim.send_signal(signal.SIGKILL)
    assert probe.returncode == 0, probe.stderr.decode()
    report = json.loads(probe.stdout)
    assert report["done"] == []
    assert is_alive
    assert report["environment"] == {}
    assert report["files"]
    assert report["calls"]
    assert available().is_whole  # what is said without entering it
    assert report["capabilities"]
    assert (report["user"] == 0) == (os.geteuid() == 0 and user == "same")
