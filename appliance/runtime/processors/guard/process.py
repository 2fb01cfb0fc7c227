"""A guard as the service sees it: lanes to it, what runs on each, and its end. Event-loop thread only."""

import asyncio
import json
import os
import re
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from appliance.clock import NS_PER_S, Clock
from appliance.domain.errors import (
    ApplianceError,
    BadMetadata,
    LoadFailed,
    RunCrashed,
    RunFailed,
    RunRefused,
    RunStopped,
)
from appliance.domain.request import Tensors
from appliance.runtime.processors.guard import messages as m
from appliance.runtime.processors.guard.area import LARGEST_BYTES, Area
from appliance.runtime.processors.guard.forkserver import Forked, ForkServer
from appliance.runtime.processors.guard.inside import SEQUENCE, STOP
from appliance.runtime.processors.guard.limits import LAST_WORDS_BYTES, status_bytes
from appliance.tasks.base import TokenRows

_WATCH_EVERY_S = 0.2
STOP_GRACE_S = 0.15
"""From the runtime's own terminate flag, which is looked at between nodes, to the end of the process."""
LOAD_S_MAX = 120.0
READY_S_MAX = 10.0
_TOLERATED_BYTES = 64 << 20
"""Above what was granted: shared memory, and what the interpreter takes in time."""
_RECEIVE_BYTES = m.HEADER_BYTES_MAX
_REPORT_BYTES_MAX = 4096


@dataclass(eq=False, slots=True)
class GuardedBuild:
    """A build in a guard; what `run` and `unload` are called with."""

    guard: "GuardProcess"
    number: int
    build_id: str
    path: str
    """Of its file, from the guard's folder on."""
    need_bytes: int
    resident_bytes: int
    """What the ledger counts for it."""
    output_names: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class ShownFile:
    """A file that a guard sees, beside those of its builds."""

    path: str
    """From the guard's folder on."""
    users: int = 0


@dataclass(eq=False, slots=True)
class Errand:
    """One request to a guard, from when it is wanted to its answer."""

    code: int
    number: int
    fields: tuple[str, ...]
    tensors: Tensors
    answer: asyncio.Future[Any]
    settle: Callable[[m.Message, Mapping[str, np.ndarray]], Any]
    """Makes the answer; raises m.BadMessage for one that no guard of ours would give."""
    what: str
    """The build or the file that it is about."""
    until_ns: int
    is_limit_own: bool
    """Whether that is the guard's own limit, and not when the caller gives up."""
    is_stopped: bool = False
    started_ns: int = 0
    on_time: Callable[[int], None] | None = None
    """Told the nanoseconds that it took, also where nobody waits for the answer."""

    @property
    def is_run(self) -> bool:
        return self.code == m.RUN


@dataclass(eq=False, slots=True)
class Lane:
    """One errand at a time: a connection and two areas of shared memory."""

    index: int
    connection: socket.socket
    request_area: Area = field(default_factory=Area)
    answer_area: Area = field(default_factory=Area)
    requests: m.Layouts = field(default_factory=m.Layouts)
    answers: m.Layouts = field(default_factory=m.Layouts)
    sequence: int = 0
    errand: Errand | None = None
    timer: asyncio.TimerHandle | None = None
    used_bytes: int = 0


class LaneGroup:
    """Lanes for one purpose, and what waits for one of them."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.free = deque(lanes)
        self.waiting: deque[Errand] = deque()


class GuardProcess:
    """A process with the builds of one tenant."""

    def __init__(
        self, clock: Clock, tenant: str, folder: Path, *, run_lanes: int, run_s_max: float, run_bytes_max: int
    ) -> None:
        """`folder`: what the guard sees of the disk; removed by whoever made it."""
        self._clock = clock
        self.tenant = tenant
        self.folder = folder
        self._run_ns_max = int(run_s_max * NS_PER_S)
        self._run_bytes_max = run_bytes_max
        self._loop = asyncio.get_running_loop()
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(run_lanes + 2)]
        self._theirs = [theirs for _, theirs in pairs]
        self._lanes = [Lane(index, ours) for index, (ours, _) in enumerate(pairs)]
        self._runs = LaneGroup(self._lanes[:run_lanes])
        self._loads = LaneGroup(self._lanes[run_lanes : run_lanes + 1])
        self._calls = LaneGroup(self._lanes[run_lanes + 1 :])
        self._control: socket.socket | None = None
        self._forked: Forked | None = None
        self._last_words = os.memfd_create("last words", os.MFD_CLOEXEC)
        self._threads: list[int] = []
        self.base_bytes = 0
        """What it takes beside its builds: at first the interpreter, then also tokenizers and what sessions share."""
        self._first_bytes = 0
        self.confinement: Mapping[str, bool] = {}
        self._watch: asyncio.TimerHandle | None = None
        self.builds: dict[int, GuardedBuild] = {}
        self.files: dict[Path, ShownFile] = {}
        self._numbers = 0
        self.loading = asyncio.Lock()
        """Held from the linking of a form to the end of its load: the folder says which one is loaded now."""
        self.last_used_ns = clock.now_ns()
        self.is_live = False
        self.has_ended = False
        self.on_end: Callable[[GuardProcess, list[str], str], None] = lambda guard, culprits, reason: None
        """Told once, when it has ended by itself: what was running, and why it ended."""
        self.on_base: Callable[[], None] = lambda: None
        """Told when `base_bytes` has changed."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is asked of it now."""
        return self.loading.locked() or any(lane.errand is not None for lane in self._lanes)

    @property
    def pid(self) -> int:
        """0 before it has started."""
        return 0 if self._forked is None else self._forked.pid

    # -- begin and end -------------------------------------------------------------------------------------------------

    async def start(self, server: ForkServer, user: int, threads_per_run: int) -> None:
        """Have it forked, and wait until it has given its rights up. Raises: OSError, TimeoutError, ValueError."""
        home = {"folder": str(self.folder), "user": user, "granted_bytes": self._granted_bytes()}
        order = {"home": home, "threads": threads_per_run}
        report, self._forked, self._control = await asyncio.to_thread(self._fork, server, order)
        self.base_bytes = self._first_bytes = int(report["base_bytes"])
        self.confinement = {str(name): bool(value) for name, value in report["confinement"].items()}
        self._threads = [int(ident) for ident in report["threads"]]
        for lane in self._lanes:
            lane.connection.setblocking(False)
            self._hand_over(lane, m.TAKE_REQUEST_AREA, lane.request_area)
            self._hand_over(lane, m.TAKE_ANSWER_AREA, lane.answer_area)
            self._loop.add_reader(lane.connection.fileno(), self._readable, lane)
        self.is_live = True
        self.last_used_ns = self._clock.now_ns()

    def _fork(self, server: ForkServer, order: Mapping[str, Any]) -> tuple[dict[str, Any], Forked, socket.socket]:
        """Blocks until the guard has reported."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            handed = [theirs.fileno(), self._last_words, *(one.fileno() for one in self._theirs)]
            forked = self._forked = server.fork(order, handed)  # known from here on, so that it can be killed
        for one in self._theirs:
            one.close()
        ours.settimeout(READY_S_MAX)
        report = ours.recv(_REPORT_BYTES_MAX)
        if not report:
            raise ConnectionResetError(f"a guard did not start: {self._said()[-500:]}")
        ours.setblocking(False)
        return json.loads(report), forked, ours

    def end(self) -> None:
        """Kill it; whoever waits for an answer is told."""
        self._ended("the box ended it", is_own_end=False)

    def _ended(self, reason: str, *, is_own_end: bool = True, blamed: list[str] | None = None) -> None:
        """`blamed`: whose fault it is; None: what was running says its last words."""
        if self.has_ended:
            return
        self.has_ended = True
        self.is_live = False
        if self._forked is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self._forked.descriptor, signal.SIGKILL)
            os.close(self._forked.descriptor)
        if self._watch is not None:
            self._watch.cancel()
        said = self._said()
        culprits = self._culprits(said) if blamed is None else blamed
        reason = _cause(said) or reason
        for lane in self._lanes:
            if self._control is not None:
                self._loop.remove_reader(lane.connection.fileno())
            self._close(lane, reason)
        for group in (self._runs, self._loads, self._calls):
            while group.waiting:
                self._refuse(group.waiting.popleft(), reason)
        if self._control is not None:
            self._control.close()
        os.close(self._last_words)
        if is_own_end:
            self.on_end(self, culprits, reason)

    def _close(self, lane: Lane, reason: str) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
        errand, lane.errand = lane.errand, None
        lane.connection.close()
        lane.request_area.close()
        lane.answer_area.close()
        if errand is not None:
            self._tell_time(errand)
            self._refuse(errand, reason)

    def _refuse(self, errand: Errand, reason: str) -> None:
        if errand.answer.done():
            return
        if errand.is_stopped:
            errand.answer.set_exception(self._stopped(errand))
        elif errand.code == m.LOAD:
            errand.answer.set_exception(LoadFailed(build_id=errand.what, reason=f"its process ended: {reason}"))
        else:
            errand.answer.set_exception(RunCrashed(variant_id=errand.what, reason=reason))

    def _said(self) -> str:
        return os.pread(self._last_words, LAST_WORDS_BYTES, 0).decode(errors="replace")

    def _culprits(self, said: str) -> list[str]:
        """What was running on the thread that crashed, else all that was running."""
        running = [lane for lane in self._lanes if lane.errand is not None]
        crashed = re.search(r"Current thread 0x([0-9a-f]+)", said)
        if crashed and int(crashed[1], 16) in self._threads:
            own = self._lanes[self._threads.index(int(crashed[1], 16))]
            running = [own] if own in running else running
        return [lane.errand.what for lane in running if lane.errand is not None]

    # -- what is asked of it -------------------------------------------------------------------------------------------

    async def load(
        self, build_id: str, path: str, *, optimised: bool, need_bytes: int, resident_bytes: int
    ) -> GuardedBuild:
        """Raises: LoadFailed."""
        self._numbers += 1
        build = GuardedBuild(self, self._numbers, build_id, path, need_bytes, resident_bytes)
        self.builds[build.number] = build

        def settle(message: m.Message, _: Mapping[str, np.ndarray]) -> None:
            build.output_names = message.fields

        try:
            fields = (path, "optimised" if optimised else "plain", str(self._granted_bytes()))
            await self._ask(self._loads, m.LOAD, build.number, fields, {}, settle, build_id, int(LOAD_S_MAX * NS_PER_S))
        except RunFailed as error:
            self.builds.pop(build.number, None)
            raise LoadFailed(build_id=build_id, reason=error.reason) from None
        except BaseException:
            self.builds.pop(build.number, None)
            raise
        return build

    def run(
        self, build: GuardedBuild, inputs: Tensors, outputs: Sequence[str] | None, deadline_ns: int | None
    ) -> asyncio.Future[dict[str, Any]]:
        """Port `Processor`."""
        names = build.output_names if outputs is None else tuple(outputs)

        def settle(_: m.Message, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            if tuple(tensors) != names:
                raise m.BadMessage("it answered with other outputs")
            return tensors

        return self._ask(
            self._runs, m.RUN, build.number, names, inputs, settle, build.build_id, self._run_ns_max, deadline_ns
        )

    def tokenize(
        self, path: str, texts: np.ndarray, tokens_max: int, build_id: str, on_time: Callable[[int], None]
    ) -> asyncio.Future[TokenRows]:
        """Port `TextReader`; `path` of the tokenizer, from the guard's folder on."""

        def settle(_: m.Message, tensors: Mapping[str, np.ndarray]) -> TokenRows:
            return _token_rows(tensors, len(texts), tokens_max)

        tensors, limit_ns = {"texts": texts}, self._run_ns_max
        return self._ask(
            self._calls, m.TOKENISE, tokens_max, (path,), tensors, settle, build_id, limit_ns, on_time=on_time
        )

    async def unload(self, build: GuardedBuild) -> None:
        """Its memory is back afterwards."""
        self.builds.pop(build.number, None)
        if self.is_live:
            fields = (str(self._granted_bytes()),)
            with suppress(ApplianceError):
                limit_ns = self._run_ns_max
                await self._ask(self._loads, m.UNLOAD, build.number, fields, {}, _nothing, build.build_id, limit_ns)

    def _ask(
        self,
        group: LaneGroup,
        code: int,
        number: int,
        fields: tuple[str, ...],
        tensors: Tensors,
        settle: Callable[[m.Message, Mapping[str, np.ndarray]], Any],
        what: str,
        limit_ns: int,
        deadline_ns: int | None = None,
        on_time: Callable[[int], None] | None = None,
    ) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.last_used_ns = self._clock.now_ns()
        until_ns = self.last_used_ns + limit_ns
        is_limit_own = deadline_ns is None or until_ns <= deadline_ns
        if deadline_ns is not None:
            until_ns = min(until_ns, deadline_ns)
        errand = Errand(code, number, fields, tensors, answer, settle, what, until_ns, is_limit_own, on_time=on_time)
        if not self.is_live:
            self._refuse(errand, "it has ended before")
        elif group.free:
            self._begin(group, group.free.popleft(), errand)
        else:
            group.waiting.append(errand)
        return answer

    def _begin(self, group: LaneGroup, lane: Lane, errand: Errand) -> None:
        try:
            header, message, parts = lane.requests.pack(errand.code, errand.number, errand.fields, errand.tensors)
            if message.end > lane.request_area.size:
                self._enlarge_request(lane, message.end)
            m.write(message, parts, lane.request_area.mapping)
        except ValueError as error:  # of a type or size that cannot be sent
            group.free.append(lane)
            errand.answer.set_exception(RunRefused(variant_id=errand.what, reason=str(error)))
            return
        except OSError as error:
            group.free.append(lane)
            errand.answer.set_exception(RunFailed(variant_id=errand.what, reason=str(error)))
            return
        lane.errand = errand
        errand.started_ns = self._clock.now_ns()
        lane.used_bytes = message.end
        lane.sequence = (lane.sequence + 1) & 0xFFFFFFFF
        delay_s = max(0.0, (errand.until_ns - self._clock.now_ns()) / NS_PER_S)
        if errand.is_run and errand.is_limit_own:  # so that the process ends at the limit; a caller is told anyway
            delay_s -= min(STOP_GRACE_S, delay_s / 2)
        lane.timer = self._loop.call_later(delay_s, self._stop, lane, lane.sequence)
        self._send(lane, header)
        if self._watch is None:
            self._watch = self._loop.call_later(_WATCH_EVERY_S, self._look)

    # -- the wire ------------------------------------------------------------------------------------------------------

    def _send(self, lane: Lane, header: bytes) -> None:
        try:
            lane.connection.send(SEQUENCE.pack(lane.sequence) + header)
        except OSError as error:
            self._ended(str(error))

    def _enlarge_request(self, lane: Lane, need_bytes: int) -> None:
        if need_bytes > LARGEST_BYTES:
            raise m.BadMessage(f"{need_bytes} bytes of tensors are too many")
        old, lane.request_area = lane.request_area, Area(need_bytes)
        old.close()
        self._hand_over(lane, m.TAKE_REQUEST_AREA, lane.request_area)

    def _hand_over(self, lane: Lane, code: int, area: Area) -> None:
        header = SEQUENCE.pack(lane.sequence) + lane.requests.pack(code, 0, (), {})[0]
        socket.send_fds(lane.connection, [header], [area.descriptor])
        area.sent()

    def _readable(self, lane: Lane) -> None:
        try:
            data = lane.connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended("it was killed")
            return
        try:
            message = lane.answers.read(data, lane.answer_area.size)
            if lane.errand is None:
                raise m.BadMessage("it answered what it was not asked")
            if message.code == m.NEEDS_AREA:
                self._enlarge_answer(lane, lane.errand, message.number)
            else:
                self._settle(lane, lane.errand, message)
        except m.BadMessage as error:  # nothing of ours would say this
            self._ended(f"it broke the protocol: {error}")

    def _enlarge_answer(self, lane: Lane, errand: Errand, need_bytes: int) -> None:
        if need_bytes > min(LARGEST_BYTES, self._run_bytes_max):
            self._finish(lane, errand, RunRefused(variant_id=errand.what, reason=f"outputs of {need_bytes} bytes"))
            lane.connection.send(SEQUENCE.pack(lane.sequence))
            return
        old, lane.answer_area = lane.answer_area, Area(need_bytes)
        old.close()
        lane.answers.forget()
        self._hand_over(lane, m.TAKE_ANSWER_AREA, lane.answer_area)

    def _settle(self, lane: Lane, errand: Errand, message: m.Message) -> None:
        value: Any
        if message.code == m.DONE:
            value = errand.settle(message, m.copies(message, lane.answer_area.mapping))
            if message.number and not errand.is_run:
                self._took(lane, message.number)
        elif message.code == m.FAILED and len(message.fields) == 2:
            value = self._stopped(errand) if errand.is_stopped else _failure(errand, *message.fields)
        else:
            raise m.BadMessage(f"an answer of the kind {message.code}")
        lane.answer_area.give_back(message.end)
        self._finish(lane, errand, value)

    def _took(self, lane: Lane, count_bytes: int) -> None:
        """It says what it takes in all. While more is under way in it, that is counted elsewhere, so it is not looked
        at; more than it was granted it cannot have.
        """
        if any(one.errand is not None for one in self._lanes if one is not lane):
            return
        beside = count_bytes - sum(build.resident_bytes for build in self.builds.values())
        self.base_bytes = max(self._first_bytes, min(beside, self._first_bytes + self._granted_bytes()))
        self.on_base()

    def _finish(self, lane: Lane, errand: Errand, value: Any) -> None:
        """The lane is free again; the next who waits for one begins."""
        lane.request_area.give_back(lane.used_bytes)
        lane.errand = None
        self._tell_time(errand)
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if not errand.answer.done():
            if isinstance(value, BaseException):
                errand.answer.set_exception(value)
            else:
                errand.answer.set_result(value)
        self.last_used_ns = self._clock.now_ns()
        group = self._group_of(lane)
        while group.waiting:
            waiting = group.waiting.popleft()
            if not waiting.answer.done():
                self._begin(group, lane, waiting)
                return
        group.free.append(lane)

    def _tell_time(self, errand: Errand) -> None:
        if errand.on_time is not None:
            errand.on_time(self._clock.now_ns() - errand.started_ns)

    def _group_of(self, lane: Lane) -> LaneGroup:
        if lane.index < len(self._lanes) - 2:
            return self._runs
        return self._loads if lane.index == len(self._lanes) - 2 else self._calls

    # -- limits --------------------------------------------------------------------------------------------------------

    def _stop(self, lane: Lane, sequence: int) -> None:
        """An errand is at its limit: the runtime's flag first, then the process. See `_begin` for when that is."""
        errand = lane.errand
        if errand is None or lane.sequence != sequence:
            return
        errand.is_stopped = True
        if not errand.is_run:
            self._kill(lane, sequence)
            return
        assert self._control is not None
        with suppress(OSError):
            self._control.send(STOP.pack(lane.index, sequence))
        lane.timer = self._loop.call_later(STOP_GRACE_S, self._kill, lane, sequence)

    def _kill(self, lane: Lane, sequence: int) -> None:
        errand = lane.errand
        if errand is not None and lane.sequence == sequence:
            # Who gave up early says nothing about the build.
            blamed = [errand.what] if errand.is_limit_own else []
            self._ended("a run in it took longer than it may", blamed=blamed)

    def _stopped(self, errand: Errand) -> ApplianceError:
        reason = "it took longer than it may"
        if errand.code == m.LOAD:
            return LoadFailed(build_id=errand.what, reason=reason)
        return RunStopped(variant_id=errand.what, reason=reason)

    def _granted_bytes(self) -> int:
        """What the process may allocate beyond what it has by itself: for its builds, and for their runs."""
        return self._run_bytes_max + sum(build.need_bytes for build in self.builds.values())

    def _look(self) -> None:
        """While it works: whether it takes more than it was granted, by whatever means."""
        self._watch = None
        taken = status_bytes(self.pid, "RssAnon", "RssShmem")
        if taken > self._first_bytes + self._granted_bytes() + _TOLERATED_BYTES:
            self._ended(f"it took {taken} bytes of memory, which are more than it may")
        elif self.is_busy:
            self._watch = self._loop.call_later(_WATCH_EVERY_S, self._look)


def _failure(errand: Errand, kind: str, reason: str) -> ApplianceError:
    if errand.code == m.TOKENISE and kind == BadMetadata.__name__:
        return BadMetadata(reason=reason)
    return RunRefused(variant_id=errand.what, reason=f"{kind}: {reason}" if kind else reason)


def _token_rows(tensors: Mapping[str, np.ndarray], texts: int, tokens_max: int) -> TokenRows:
    """Raises: m.BadMessage."""
    lengths, ids, types = (tensors.get(name) for name in ("lengths", "ids", "types"))
    if any(one is None or one.dtype != np.int64 or one.ndim != 1 for one in (lengths, ids, types)):
        raise m.BadMessage("it answered with other tensors")
    assert lengths is not None and ids is not None and types is not None
    counts = lengths.tolist()
    if len(counts) != texts or not all(0 <= count <= tokens_max for count in counts):
        raise m.BadMessage("it answered for other texts")
    if not sum(counts) == len(ids) == len(types):
        raise m.BadMessage("its tokens do not add up")
    ends = list(accumulate(counts))
    spans = list(zip([0, *ends], ends, strict=False))
    return [(ids[start:end].tolist(), types[start:end].tolist()) for start, end in spans]


def _nothing(message: m.Message, tensors: Mapping[str, np.ndarray]) -> None:
    pass


def _cause(said: str) -> str:
    """Why a process ended, in its own last words."""
    thrown = re.search(r"terminate called[^\n]*(?:\n\s*what\(\):[^\n]*)?", said)
    fatal = re.search(r"Fatal Python error: ([^\n]*)", said)
    return " ".join((thrown[0] if thrown else fatal[1] if fatal else "").split())[:300]
