"""The fork server: a process that has imported what its children need, of which they are forked, so that one begins in
milliseconds and shares its pages with the others.

Both halves stand here. It is a program of its own, not a fork of the service: it has neither the service's memory nor
its threads, and may be started at any time; that is when the first child is needed. What it imports, and what a child
does, says a module with the two functions of `Program`.
"""

import asyncio
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import psutil

from appliance.child import LINE_BYTES_MAX, Child, die_with_parent, scrubbed_environment

_ORDER_BYTES_MAX = 65_536
_DESCRIPTORS_MAX = 128
_MODULE = "appliance.forkserver"
_NOWHERE = "/dev/null"
ANSWER_S_MAX = 60.0
"""From an order to its child, what the fork server imports first included; many times what that takes."""


class Program(Protocol):
    """A module of which children are forked."""

    def get_ready(self, *arguments: str) -> None:
        """In the fork server, once: import what children need. Leaves no thread running."""

    def be_child(self, order: Any, descriptors: Sequence[int], parent: int) -> None:
        """In the child: carry the order out with these open files, and end the process. `parent`: the fork server's."""


@dataclass(frozen=True, slots=True)
class Forked:
    """A child that was begun."""

    pid: int
    descriptor: int
    """Names the process for good, also when its number is given to another one."""


class ForkServer:
    """The service's half. `start` on the thread that lives longest: with it the fork server ends."""

    def __init__(self, program: str, *arguments: str, answer_s_max: float = ANSWER_S_MAX) -> None:
        """`program`: the module that is a `Program`; `arguments`: for its `get_ready`; `answer_s_max`: a fork server
        that says nothing for so long is replaced.
        """
        self._command = (program, *arguments)
        self._answer_s_max = answer_s_max
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._turn = threading.Lock()
        self.is_closed = False
        """Whether it was closed since the last `start`."""

    @property
    def pid(self) -> int:
        """0 while it is not running."""
        return 0 if self._process is None or self._process.poll() is not None else self._process.pid

    def cpu_s(self) -> float:
        """Processor time that it has taken, without its children's; 0 while it is not running."""
        try:
            times = psutil.Process(self.pid).cpu_times() if self.pid else None
        except psutil.NoSuchProcess:
            return 0.0
        return 0.0 if times is None else times.user + times.system

    def start(self) -> None:
        """Have the process running; it imports in the meantime."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-m", _MODULE, str(theirs.fileno()), str(os.getpid()), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # children have one of their own
                env=_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._connection = ours
        self.is_closed = False

    def fork(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> Forked:
        """Begin a child with these open files. Blocks; any thread.

        Raises: OSError when the fork server has gone, or says nothing: then it is ended, and the next `start` makes
        another one.
        """
        with self._turn:
            if self._connection is None:
                raise ConnectionResetError("the fork server is not running")
            assert self._process is not None
            self._connection.settimeout(self._answer_s_max)
            try:
                socket.send_fds(self._connection, [json.dumps(order).encode()], list(descriptors))
                data, got, _, _ = socket.recv_fds(self._connection, 64, 1)
                if not got:
                    raise ConnectionResetError("the fork server has ended")
            except (TimeoutError, ConnectionError):  # a late answer would be taken for that of the next order
                self._process.kill()
                self._process.wait()
                raise
            return Forked(int(data), got[0])

    def close(self) -> None:
        """End it, and with it all its children."""
        self.is_closed = True
        if self._process is not None:
            self._process.kill()  # whoever waits for its answer is told, and lets go
            self._process.wait()
        with self._turn:
            if self._connection is not None:
                self._connection.close()
            self._process = self._connection = None


async def begin_child(server: ForkServer, order: Mapping[str, Any]) -> Child:
    """Fork a child that calls `with_streams`; of a second fork server where the first one has just ended. Raises:
    OSError as `ForkServer.fork`.
    """
    try:
        return await _begun(server, order)
    except ConnectionError:
        if server.is_closed:
            raise
        return await _begun(server, order)


async def _begun(server: ForkServer, order: Mapping[str, Any]) -> Child:
    server.start()
    pairs = [socket.socketpair() for _ in range(3)]
    ours, theirs = [one for one, _ in pairs], [one for _, one in pairs]

    def fork() -> OSError | None:
        """Goes on when nobody waits for it any more, and closes what is the child's."""
        try:
            os.close(server.fork(order, [one.fileno() for one in theirs]).descriptor)
        except OSError as error:
            return error
        finally:
            for one in theirs:
                one.close()
        return None

    ways: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def close() -> None:
        for _, writer in ways:
            writer.close()
        for one in ours[len(ways) :]:
            one.close()

    try:
        if error := await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(fork))):
            raise error
        for one in ours:
            ways.append(await asyncio.open_unix_connection(sock=one, limit=LINE_BYTES_MAX))
        (stdout, stdin), (stderr, _), (status, _) = ways
        pid = int(await status.readline() or 0)
        if not pid:
            raise ConnectionResetError("the child has ended before it began")
    except BaseException:  # a child that begins all the same gets no order, and ends
        close()
        raise
    ended = asyncio.ensure_future(status.read())

    async def wait() -> int:
        return int(await asyncio.shield(ended) or -signal.SIGKILL)

    return Child(pid, stdin, stdout, stderr, wait, close)


def _environment() -> dict[str, str]:
    """Scrubbed, without a home in which a folder could be made."""
    kept = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    nowhere = {"HOME": _NOWHERE, "XDG_CACHE_HOME": _NOWHERE, "TOKENIZERS_PARALLELISM": "false"}
    return scrubbed_environment() | kept | nowhere


# -- the process -------------------------------------------------------------------------------------------------------


def main(descriptor: int, parent: int, module: str, *arguments: str) -> None:
    """Fork whenever told to; the kernel collects children that have ended."""
    die_with_parent()
    if os.getppid() != parent:
        raise SystemExit("the parent has ended")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    program = cast(Program, importlib.import_module(module))
    program.get_ready(*arguments)
    gc.freeze()  # nothing that is there now is looked at, and so copied, by a child's collector
    connection = socket.socket(fileno=descriptor)
    here = os.getpid()
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, _ORDER_BYTES_MAX, _DESCRIPTORS_MAX)
        if not data:
            return
        waits, goes = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(goes)
            os.read(waits, 1)  # nothing comes: both ends are closed once there is a descriptor of this process
            os.close(waits)
            connection.close()
            try:
                program.be_child(json.loads(data), descriptors, here)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        child = os.pidfd_open(pid)  # the kernel has collected no child that still waits
        os.close(waits)
        os.close(goes)
        socket.send_fds(connection, [str(pid).encode()], [child])
        for one in (child, *descriptors):
            os.close(one)


def with_streams(descriptors: Sequence[int], body: Callable[[int], None]) -> None:
    """In a child that `begin_child` began: call `body` in a child of its own, which leads a process group and has
    standard streams that lead to the service, with the process that it must not outlive; tell the service its number,
    and how it ended. Never returns.
    """
    streams, errors, status = descriptors
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with_parent()
    here = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        os.close(status)
        for stream, number in ((streams, 0), (streams, 1), (errors, 2)):
            os.dup2(stream, number)
        os.close(streams)
        os.close(errors)
        body(here)
        os._exit(0)
    os.close(streams)
    os.close(errors)
    os.setpgid(pid, pid)
    os.write(status, b"%d\n" % pid)
    _, ended = os.waitpid(pid, 0)
    os.write(status, str(os.waitstatus_to_exitcode(ended)).encode())
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
