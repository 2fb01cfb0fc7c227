"""A guard, from within: builds of one tenant on one kind of processor, and a thread for each channel that waits for
what to do with them.

The main thread listens for orders to stop a run, and ends the process when the service has gone.

Whatever a thread may need is imported before: a guard sees no libraries any more.
"""

import encodings.ascii
import encodings.latin_1  # noqa: F401 - for whoever decodes so
import faulthandler
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np
import tokenizers  # noqa: F401 - used by `tokenize`

from appliance.domain.errors import RunFailed
from appliance.domain.hardware import PreparedForm
from appliance.domain.request import Tensors
from appliance.runtime.processors import KINDS
from appliance.runtime.processors.cpu.heap import Trimmer, trim
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from appliance.runtime.processors.cpu.threads import pin
from appliance.runtime.processors.guard import messages as m
from appliance.runtime.processors.guard.area import mapped
from appliance.runtime.processors.guard.limits import DataLimit, Home, OwnMemory, enter
from appliance.runtime.processors.guard.requests import joined
from appliance.runtime.processors.sessions import GuardSessions, InMemory, Sleeps
from appliance.tasks.embedding import parsed_tokenizers, tokenize

STOP = struct.Struct("<II")
"""An order to stop: the channel, and which of its requests."""
SEQUENCE = struct.Struct("<I")
"""Stands before each request: its number in the channel."""
_REASON_CHARACTERS_MAX = 500
_RECEIVE_BYTES = SEQUENCE.size + m.HEADER_BYTES_MAX
_FD_BYTES = socket.CMSG_SPACE(4)


def be_guard(order: Mapping[str, Any], control: socket.socket, channels: Sequence[socket.socket], errors: int) -> None:
    """Never returns. `errors`: its standard error from now on."""
    os.dup2(errors, 2)
    _close_all_but({0, 1, 2, control.fileno(), *(channel.fileno() for channel in channels)})
    pin(order["cores"])
    entered = enter(Home(**order["home"]))
    flush_subnormals()  # the threads of the lanes inherit it
    kind = KINDS[order["kind"]].guard
    assert kind is not None, "else no guard is begun"
    sessions = kind.sessions(order["workers"], order["threads"], entered.mappings)
    guard = Guard(sessions, entered.root, entered.data, entered.memory)
    threads = [ChannelThread(guard, channel) for channel in channels]
    for thread in threads:
        thread.start()
    faulthandler.enable(2)  # says which thread it was
    report = {
        "base_bytes": entered.base_bytes,
        "confinement": asdict(entered.confinement),
        "threads": [thread.ident for thread in threads],
    }
    control.send(json.dumps(report).encode())
    while stop := control.recv(STOP.size):
        index, sequence = STOP.unpack(stop)
        threads[index].stop(sequence)
    os._exit(0)


def _close_all_but(kept: set[int]) -> None:
    """What libraries have opened in the fork server is none of a guard's business."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in kept:
            with suppress(OSError):
                os.close(descriptor)


class Guard:
    """What the threads share."""

    def __init__(self, sessions: GuardSessions, root: str, data: DataLimit, memory: OwnMemory) -> None:
        self.sessions = sessions
        self.data = data
        self._memory = memory
        self.root = root
        self.builds: dict[int, InMemory] = {}
        self.ran = 0
        self.trimmer = Trimmer(runs=lambda: self.ran)

    def taken_bytes(self) -> int:
        """What is really held, without what the heap keeps for later."""
        trim()
        return self._memory.pss_bytes()


class ChannelThread(threading.Thread):
    """Takes one request after the other, and answers each."""

    def __init__(self, guard: Guard, connection: socket.socket) -> None:
        super().__init__(daemon=True)
        self._guard = guard
        self._connection = connection
        self._request_area: Any = None
        self._answer_area: Any = None
        self._requests = m.Layouts()
        self._answers = m.Layouts()
        self._lock = threading.Lock()
        self._sequence = 0
        self._to_stop = -1
        """The run that was last told to end: it may be told before its request is taken."""
        self._run_stop = guard.sessions.stop()
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._do: dict[int, Callable[[m.Message], m.Packed]] = {
            m.RUN: self._run,
            m.RUN_ROWS: self._run_rows,
            m.LOAD: self._load,
            m.UNLOAD: self._unload,
            m.SLEEP: self._sleep,
            m.WAKE: self._wake,
            m.TOKENISE: self._tokenise,
        }

    def stop(self, sequence: int) -> None:
        """Have a run end before its next node, unless it has ended. Called by another thread."""
        with self._lock:
            self._to_stop = sequence
            if self._sequence == sequence:
                self._run_stop.terminate = True

    def run(self) -> None:
        while True:
            message = self._received()
            try:
                packed = self._do[message.code](message)
            except BaseException as error:  # panics of native libraries are no Exceptions
                packed = self._failure(error)
            self._send(packed)
            del packed, message  # what they hold would pin memory until the next request

    # -- requests ------------------------------------------------------------------------------------------------------

    def _run(self, message: m.Message) -> m.Packed:
        return self._computed(message.number, m.views(message, self._request_area), message.fields)

    def _run_rows(self, message: m.Message) -> m.Packed:
        layout, *outputs = message.fields
        return self._computed(message.number, joined(layout, m.views(message, self._request_area)), tuple(outputs))

    def _computed(self, number: int, inputs: Tensors, outputs: tuple[str, ...]) -> m.Packed:
        self._guard.ran += 1
        results = self._guard.sessions.run(self._guard.builds[number], inputs, outputs or None, self._run_stop)
        if not all(isinstance(value, np.ndarray) for value in results.values()):
            raise m.BadMessage("an output is no tensor")
        return self._answers.pack(m.DONE, 0, (), results)

    def _load(self, message: m.Message) -> m.Packed:
        path, optimised, computes_in, granted_bytes = message.fields
        self._guard.data.grant(int(granted_bytes))
        is_optimised = optimised == "optimised"
        path = self._guard.root + path
        form = PreparedForm(str(message.number), path, 0, is_optimised, computes_in=computes_in)
        loaded = self._guard.builds[message.number] = self._guard.sessions.load(form)
        fields = (str(loaded.mapped_bytes), *loaded.output_names)
        return self._answers.pack(m.DONE, self._guard.taken_bytes(), fields, {})

    def _unload(self, message: m.Message) -> m.Packed:
        self._guard.data.grant(int(message.fields[0]))
        self._guard.sessions.unload(self._guard.builds.pop(message.number))
        self._guard.trimmer.want()
        return self._answers.pack(m.DONE, 0, (), {})

    def _sleep(self, message: m.Message) -> m.Packed:
        assert isinstance(self._guard.sessions, Sleeps), "only what has mapped weights is asked"
        self._guard.sessions.sleep(self._guard.builds[message.number])
        self._guard.trimmer.want()
        self._guard.data.grant(int(message.fields[0]))
        return self._answers.pack(m.DONE, 0, (), {})

    def _wake(self, message: m.Message) -> m.Packed:
        self._guard.data.grant(int(message.fields[0]))
        assert isinstance(self._guard.sessions, Sleeps), "only what has mapped weights is asked"
        self._guard.sessions.wake(self._guard.builds[message.number])
        return self._answers.pack(m.DONE, 0, (), {})

    def _tokenise(self, message: m.Message) -> m.Packed:
        (path,) = message.fields
        texts = m.views(message, self._request_area)["texts"].tolist()
        known = parsed_tokenizers()
        rows = tokenize(self._guard.root + path, texts, message.number)
        taken_bytes = 0 if parsed_tokenizers() == known else self._guard.taken_bytes()
        tensors = {
            "lengths": np.array([len(row.ids) for row in rows], np.int64),
            "ids": np.array([token for row in rows for token in row.ids], np.int64),
            "types": np.array([kind for row in rows for kind in row.segments], np.int64),
            "cut": np.array([row.is_cut for row in rows], np.int64),
        }
        return self._answers.pack(m.DONE, taken_bytes, (), tensors)

    def _failure(self, error: BaseException) -> m.Packed:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        kind = "" if isinstance(error, RunFailed) else type(error).__name__
        fields = (kind, reason[:_REASON_CHARACTERS_MAX].encode(errors="replace").decode())
        return self._answers.pack(m.FAILED, 0, fields, {})

    # -- the wire ------------------------------------------------------------------------------------------------------

    def _received(self) -> m.Message:
        """The next request; new shared memory that comes before it is taken."""
        while True:
            header, descriptor = self._next()
            message = self._requests.read(header, 0 if self._request_area is None else len(self._request_area))
            if message.code == m.TAKE_REQUEST_AREA:
                self._request_area = mapped(descriptor, writable=False)
                self._requests.forget()
            elif message.code == m.TAKE_ANSWER_AREA:
                self._answer_area = mapped(descriptor, writable=True)
            else:
                return message

    def _next(self) -> tuple[bytes, int]:
        """A header, and the descriptor that came with it."""
        size, ancillary, _, _ = self._connection.recvmsg_into([self._buffer], _FD_BYTES)
        if not size:
            os._exit(0)
        descriptor = int.from_bytes(ancillary[0][2], "little") if ancillary else -1
        with self._lock:
            (self._sequence,) = SEQUENCE.unpack_from(self._buffer)
            if self._run_stop.terminate:  # it would fail every later run
                self._run_stop = self._guard.sessions.stop()
            if self._sequence == self._to_stop:
                self._run_stop.terminate = True
        return bytes(self._buffer[SEQUENCE.size : size]), descriptor

    def _send(self, packed: m.Packed) -> None:
        header, message, parts = packed
        if message.end > len(self._answer_area):
            self._connection.send(self._answers.pack(m.NEEDS_AREA, message.end, (), {})[0])
            descriptor = self._next()[1]
            if descriptor < 0:  # too much for the service
                return
            self._answer_area = mapped(descriptor, writable=True)
        m.write(message, parts, self._answer_area)
        self._connection.send(header)
