"""The fork server: a process with the runtime of one kind of processor imported, of which guards are forked, so that
one begins in milliseconds and shares its pages with the others.

Both halves stand here. It is a program of its own, not a fork of the service: it has neither the service's memory nor
its threads, and may be started at any time; that is when the first guard is needed.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import appliance
from appliance.child import die_with_parent
from appliance.runtime.processors.cpu.process_memory import memory_of

_ORDER_BYTES_MAX = 65_536
_DESCRIPTORS_MAX = 128
_MODULE = "appliance.runtime.processors.guard.forkserver"
_NOWHERE = "/dev/null"
"""A home in which no folder can be made."""
ANSWER_S_MAX = 60.0
"""From an order to its guard, what the fork server imports first included; many times what that takes."""
_KEPT = ("LD_LIBRARY_PATH",)


@dataclass(frozen=True, slots=True)
class Forked:
    """A guard that was begun."""

    pid: int
    descriptor: int
    """Names the process for good, also when its number is given to another one."""


class ForkServer:
    """The service's half. `start` on the thread that lives longest: with it the fork server ends."""

    def __init__(self, kind: str, answer_s_max: float = ANSWER_S_MAX) -> None:
        """`kind` of processor that its guards compute on; `answer_s_max`: a fork server that says nothing for so long
        is replaced.
        """
        self._kind = kind
        self._answer_s_max = answer_s_max
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._turn = threading.Lock()

    @property
    def pid(self) -> int:
        """0 while it is not running."""
        return 0 if self._process is None else self._process.pid

    def pss_bytes(self) -> int:
        """What the process takes, its part of what it shares with guards; 0 where nobody may know. A millisecond."""
        process = self._process
        try:
            return 0 if process is None or process.poll() is not None else memory_of("Pss", process.pid)
        except OSError:
            return 0

    def start(self) -> None:
        """Have the process running; it imports in the meantime."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-m", _MODULE, str(theirs.fileno()), str(os.getpid()), self._kind],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # guards have one of their own
                env=_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._connection = ours

    def fork(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> Forked:
        """Begin a guard with these open files. Blocks; any thread.

        Raises: OSError when the fork server has gone, or says nothing: then it is ended, and the next `start` makes
        another one.
        """
        with self._turn:
            if self._connection is None:
                raise ConnectionResetError("the fork server is not running")
            assert self._process is not None
            order = {**order, "home": {**order["home"], "parent": self._process.pid}}
            self._connection.settimeout(self._answer_s_max)
            try:
                socket.send_fds(self._connection, [json.dumps(order).encode()], list(descriptors))
                data, got, _, _ = socket.recv_fds(self._connection, 64, 1)
            except TimeoutError:  # its answer, if there ever is one, would be taken for that of the next order
                self._process.kill()
                self._process.wait()
                raise
            if not got:
                raise ConnectionResetError("the fork server has ended")
            return Forked(int(data), got[0])

    def close(self) -> None:
        """End it, and with it all guards."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _environment() -> dict[str, str]:
    """Nothing of the service's but the way to the libraries; one thread a pool, for none may run when it forks."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {
        "PYTHONPATH": str(Path(appliance.__file__).resolve().parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "HOME": _NOWHERE,
        "XDG_CACHE_HOME": _NOWHERE,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


# -- the process -------------------------------------------------------------------------------------------------------


def main(descriptor: int, parent: int, kind: str) -> None:
    """Fork whenever told to; the kernel collects guards that have ended."""
    die_with_parent()
    if os.getppid() != parent:
        raise SystemExit("the parent has ended")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    from appliance.runtime.processors import KINDS
    from appliance.runtime.processors.cpu.heap import set_up
    from appliance.runtime.processors.guard.inside import be_guard

    set_up()
    in_guard = KINDS[kind].guard
    assert in_guard is not None, "else nobody wants one"
    in_guard.get_ready()
    gc.freeze()  # nothing that is there now is looked at, and so copied, by a guard's collector
    connection = socket.socket(fileno=descriptor)
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, _ORDER_BYTES_MAX, _DESCRIPTORS_MAX)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            control, errors, *channels = descriptors
            try:
                be_guard(
                    json.loads(data),
                    socket.socket(fileno=control),
                    [socket.socket(fileno=one) for one in channels],
                    errors,
                )
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        child = os.pidfd_open(pid)
        socket.send_fds(connection, [str(pid).encode()], [child])
        for one in (child, *descriptors):
            os.close(one)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
