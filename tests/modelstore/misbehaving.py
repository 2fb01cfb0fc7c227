"""A stage program that does what a hostile model might make it do; `source` of an UnpackOrder says which.

Run by `test_child` as a `forkserver.Program`.
"""

import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from appliance.clock import pause_s
from appliance.domain.errors import StorageFull
from appliance.modelstore.orders import InspectOrder, Unpacked, UnpackOrder
from appliance.modelstore.stages import program as stages


def segfault(target: Path) -> None:
    ctypes.string_at(0)


def end_early(target: Path) -> None:
    sys.stderr.write("something was wrong\n")
    os._exit(3)


def take_memory(target: Path) -> None:
    assert bytearray(8 << 30)


def write_much(target: Path) -> None:
    with (target / "large").open("wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))


def spin(target: Path) -> None:
    while True:
        pass


def sleep(target: Path) -> None:
    (target / "pid").write_text(str(os.getpid()))
    if os.fork() == 0:
        (target / "grandchild").write_text(str(os.getpid()))
    pause_s(600)


def print_things(target: Path) -> None:
    print("a library prints this")
    os.write(1, b"and this\n")


def send_gibberish(target: Path) -> None:
    os.write(stages_wire(), b"this is no JSON\n")


def send_a_foreign_error(target: Path) -> None:
    os.write(stages_wire(), b'{"error": {"type": "SystemExit", "facts": {}}}\n')
    os._exit(0)


def fill_the_disk(target: Path) -> None:
    raise StorageFull


def look_around(target: Path) -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = {"core": resource.getrlimit(resource.RLIMIT_CORE)[1], "files": files}
    facts = {"environment": dict(os.environ), "cwd": os.getcwd(), "nice": os.nice(0), "path": sys.path, **limits}
    (target / "facts.json").write_text(json.dumps(facts))


def break_out(target: Path) -> None:
    """Try what a parser that was taken over would try, and write down what worked."""
    worked = []
    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: (target.parent / "admin.key").read_text(),
        "list": lambda: os.listdir(target.parent),
        "write": lambda: (target.parent / "planted").write_text("x"),
        "execute": lambda: subprocess.run(["/bin/true"], check=True),
        "connect": lambda: socket.create_connection(("127.0.0.1", 9), 1),
        "signal": lambda: os.kill(os.getppid(), 0),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
            worked.append(name)
        except ConnectionRefusedError:
            worked.append(name)
        except PermissionError:
            pass
    (target / "worked.json").write_text(json.dumps(worked))


WAYS: dict[str, Callable[[Path], None]] = {
    "segfault": segfault,
    "exit": end_early,
    "memory": take_memory,
    "file": write_much,
    "spin": spin,
    "sleep": sleep,
    "print": print_things,
    "gibberish": send_gibberish,
    "foreign error": send_a_foreign_error,
    "full disk": fill_the_disk,
    "environment": look_around,
    "break out": break_out,
}


def misbehave(order: UnpackOrder | InspectOrder, report: stages.Report) -> Unpacked:
    """Do what the file name of `order.source` says; the target is a folder to leave traces in."""
    target = Path(order.target)
    WAYS[Path(order.source).name](target)
    report(0.5, "half")
    return Unpacked(model=str(target / "model.onnx"))


def stages_wire() -> int:
    """The descriptor that the parent reads: the private copy of standard output."""
    return max(int(name) for name in os.listdir("/proc/self/fd") if _is_socket(name) and int(name) > 2)


def _is_socket(name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    except OSError:
        return False


def get_ready() -> None:
    stages.STAGES["unpack"] = stages.STAGES["inspect"] = misbehave


be_child = stages.be_child
