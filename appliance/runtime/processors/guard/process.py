"""A guard as the service sees it: its start, its builds, the memory it takes, and its end. Event-loop thread only."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from appliance.clock import NS_PER_S, Clock
from appliance.domain.errors import ApplianceError, LoadFailed, RunFailed
from appliance.domain.hardware import ProcessorDescription
from appliance.domain.request import Tensors
from appliance.forkserver import Forked, ForkServer
from appliance.runtime.processors.cpu.leases import Lease
from appliance.runtime.processors.cpu.mapped import CachedFile
from appliance.runtime.processors.guard import answers
from appliance.runtime.processors.guard import messages as m
from appliance.runtime.processors.guard.dispatcher import Dispatcher
from appliance.runtime.processors.guard.inside import STOP
from appliance.runtime.processors.guard.limits import is_stopped, status_bytes
from appliance.runtime.processors.guard.requests import apart_by_name
from appliance.runtime.processors.guard.stderr import Stderr, cause_of_end, crashed_thread
from appliance.tasks.base import TokenRows
from appliance.tasks.padding import Padded

_WATCH_EVERY_S = 0.2
_STOPPED_S_MAX = 5.0
"""How long a guard may be stopped by a signal (a debugger's, or somebody's mistake) while something is asked of it."""
_LOAD_S_MAX = 120.0
_READY_S_MAX = 60.0
"""Many times what it takes to begin: a machine that has too much to do is no reason to refuse a load."""
_TOLERATED_BYTES = 64 << 20
"""Above what was granted: shared memory, and what the interpreter takes in time."""
_REPORT_BYTES_MAX = 4096
_ERROR_CHARACTERS_MAX = 500


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
    """What the ledger counts for it while it is awake."""
    output_names: tuple[str, ...] = ()
    mapped_bytes: int = 0
    """Of its weights, as the guard says; 0: it cannot give them back."""
    file: CachedFile | None = None
    """Where they come from; None where giving them back is not worth it."""
    kept_bytes: int = 0
    """What stays of it when its weights are given back."""
    lease: Lease | None = None
    """On that file, which the service holds."""
    is_asleep: bool = False

    @property
    def granted_bytes(self) -> int:
        """What the guard may have allocated for it."""
        return self.kept_bytes if self.is_asleep else self.need_bytes

    @property
    def counted_bytes(self) -> int:
        """What the ledger counts for it now."""
        return self.kept_bytes if self.is_asleep else self.resident_bytes


@dataclass(eq=False, slots=True)
class ShownFile:
    """A file that a guard sees, beside those of its builds."""

    path: str
    """From the guard's folder on."""
    users: int = 0


class GuardProcess:
    """A process with the builds of one tenant on one kind of processor."""

    def __init__(
        self,
        clock: Clock,
        tenant: str,
        kind: str,
        folder: Path,
        *,
        run_channels: int,
        run_s_max: float,
        run_bytes_max: int,
    ) -> None:
        """`folder`: what the guard sees of the disk; removed by whoever made it."""
        self.tenant = tenant
        self.kind = kind
        self.folder = folder
        self._run_ns_max = int(run_s_max * NS_PER_S)
        self._run_bytes_max = run_bytes_max
        self._loop = asyncio.get_running_loop()
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(run_channels + 3)]
        self._theirs = [theirs for _, theirs in pairs]
        self._dispatcher = Dispatcher(clock, [ours for ours, _ in pairs], run_bytes_max)
        self._dispatcher.on_broken = lambda reason, blamed: self._ended(reason, blamed=blamed)
        self._dispatcher.on_begin = self._watch
        self._dispatcher.stop_run = self._stop_run
        self._dispatcher.on_taken = self._took
        self._control: socket.socket | None = None
        self._forked: Forked | None = None
        self._stderr = Stderr()
        self._threads: list[int] = []
        """Identifiers of those of its channels, in their order."""
        self.base_bytes = 0
        """What it takes beside its builds: at first the interpreter, then also tokenizers and what sessions share."""
        self._first_bytes = 0
        self.confinement: Mapping[str, bool] = {}
        self._watching: asyncio.TimerHandle | None = None
        self._stopped_looks = 0
        """How often, one after the other, it was seen to be stopped."""
        self.builds: dict[int, GuardedBuild] = {}
        self.files: dict[Path, ShownFile] = {}
        self._numbers = 0
        self.loading = asyncio.Lock()
        """Held from the linking of a form to the end of its load: the folder says which one is loaded now."""
        self.has_ended = False
        self.on_end: Callable[[GuardProcess, list[str], str], None] = lambda guard, culprits, reason: None
        """Told once, when it has ended by itself: what was running, and why it ended."""
        self.on_base: Callable[[], None] = lambda: None
        """Told when `base_bytes` has changed."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is asked of it now."""
        return self.loading.locked() or self._dispatcher.is_busy

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing that is awake, and nothing is asked of it."""
        return not self.is_busy and all(build.is_asleep for build in self.builds.values())

    @property
    def last_used_ns(self) -> int:
        return self._dispatcher.last_used_ns

    @property
    def pid(self) -> int:
        """0 before it has started."""
        return 0 if self._forked is None else self._forked.pid

    # -- begin and end -------------------------------------------------------------------------------------------------

    async def start(self, server: ForkServer, user: int, processor: ProcessorDescription) -> None:
        """Have it forked, and wait until it has given its rights up. Raises: OSError, TimeoutError, ValueError."""
        home = {"folder": str(self.folder), "user": user, "granted_bytes": self._granted_bytes()}
        order = {
            "home": home,
            "kind": processor.kind,
            "workers": processor.workers,
            "threads": processor.threads_per_run,
            "cores": processor.cores,
        }
        report, self._forked, self._control = await asyncio.to_thread(self._fork, server, order)
        self.base_bytes = self._first_bytes = int(report["base_bytes"])
        self.confinement = {str(name): bool(value) for name, value in report["confinement"].items()}
        self._threads = [int(ident) for ident in report["threads"]]
        self._dispatcher.open()

    def _fork(self, server: ForkServer, order: Mapping[str, Any]) -> tuple[dict[str, Any], Forked, socket.socket]:
        """Blocks until the guard has reported."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            handed = [theirs.fileno(), self._stderr.descriptor, *(one.fileno() for one in self._theirs)]
            forked = self._forked = server.fork(order, handed)  # known from here on, so that it can be killed
        for one in self._theirs:
            one.close()
        ours.settimeout(_READY_S_MAX)
        report = ours.recv(_REPORT_BYTES_MAX)
        if not report:
            raise ConnectionResetError(f"a guard did not start: {self._stderr.text()[-_ERROR_CHARACTERS_MAX:]}")
        ours.setblocking(False)
        return json.loads(report), forked, ours

    def end(self) -> None:
        """Kill it; whoever waits for an answer is told."""
        self._ended("the box ended it", is_own_end=False)

    def _ended(self, reason: str, *, is_own_end: bool = True, blamed: list[str] | None = None) -> None:
        """`blamed`: the builds whose fault it is; None: its standard error says it."""
        if self.has_ended:
            return
        self.has_ended = True
        if self._forked is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self._forked.descriptor, signal.SIGKILL)
            os.close(self._forked.descriptor)
        if self._watching is not None:
            self._watching.cancel()
        text = self._stderr.text()
        culprits = self._culprits(text) if blamed is None else blamed
        reason = cause_of_end(text) or reason
        self._dispatcher.close(reason)
        for one in self._theirs:  # of one that never began
            one.close()
        if self._control is not None:
            self._control.close()
        self._stderr.close()
        if is_own_end:
            self.on_end(self, culprits, reason)

    def _culprits(self, text: str) -> list[str]:
        """The build that the thread that crashed was for, else all for which anything of theirs was under way."""
        running = {index: call for index, call in self._dispatcher.under_way.items() if call.runs_theirs}
        crashed = crashed_thread(text, self._threads)
        calls = [running[crashed]] if crashed is not None and crashed in running else list(running.values())
        return [call.about for call in calls]

    # -- what is asked of it -------------------------------------------------------------------------------------------

    async def load(
        self, build_id: str, path: str, *, optimised: bool, computes_in: str, need_bytes: int, resident_bytes: int
    ) -> GuardedBuild:
        """Raises: LoadFailed."""
        self._numbers += 1
        build = GuardedBuild(self, self._numbers, build_id, path, need_bytes, resident_bytes)
        self.builds[build.number] = build

        def settle(message: m.Message, _: Mapping[str, np.ndarray]) -> None:
            build.mapped_bytes, build.output_names = answers.loaded(message.fields)

        fields = (path, "optimised" if optimised else "plain", computes_in, str(self._granted_bytes()))
        limit_ns = int(_LOAD_S_MAX * NS_PER_S)
        try:
            loads = self._dispatcher.loads
            await self._dispatcher.ask(loads, m.LOAD, build.number, fields, {}, settle, build_id, limit_ns)
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
        if isinstance(inputs, Padded):
            return self.run_rows(build, [inputs], outputs, deadline_ns)
        return self._run(m.RUN, build, (), inputs, outputs, deadline_ns)

    def run_rows(
        self, build: GuardedBuild, requests: Sequence[Tensors], outputs: Sequence[str] | None, deadline_ns: int | None
    ) -> asyncio.Future[dict[str, Any]]:
        """One run of the rows of several requests, which the guard pads and puts together."""
        layout, tensors = apart_by_name(requests)
        return self._run(m.RUN_ROWS, build, (layout,), tensors, outputs, deadline_ns)

    def _run(
        self,
        code: int,
        build: GuardedBuild,
        fields: tuple[str, ...],
        tensors: Tensors,
        outputs: Sequence[str] | None,
        deadline_ns: int | None,
    ) -> asyncio.Future[dict[str, Any]]:
        names = build.output_names if outputs is None else tuple(outputs)

        def settle(_: m.Message, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            return answers.outputs(tensors, names)

        runs, limit_ns, fields = self._dispatcher.runs, self._run_ns_max, (*fields, *names)
        return self._dispatcher.ask(
            runs, code, build.number, fields, tensors, settle, build.build_id, limit_ns, deadline_ns
        )

    def tokenize(
        self, path: str, texts: np.ndarray, tokens_max: int, build_id: str, on_time: Callable[[int], None]
    ) -> asyncio.Future[TokenRows]:
        """Port `TextReader`; `path` of the tokenizer, from the guard's folder on."""

        def settle(_: m.Message, tensors: Mapping[str, np.ndarray]) -> TokenRows:
            return answers.token_rows(tensors, len(texts), tokens_max)

        group, tensors, limit_ns = self._dispatcher.texts, {"texts": texts}, self._run_ns_max
        return self._dispatcher.ask(
            group, m.TOKENISE, tokens_max, (path,), tensors, settle, build_id, limit_ns, on_time=on_time
        )

    async def unload(self, build: GuardedBuild) -> None:
        """Its memory is back afterwards."""
        self.builds.pop(build.number, None)
        if self.has_ended:
            return
        loads, limit_ns, fields = self._dispatcher.loads, self._run_ns_max, (str(self._granted_bytes()),)
        with suppress(ApplianceError):
            ask = self._dispatcher.ask
            await ask(loads, m.UNLOAD, build.number, fields, {}, lambda *_: None, build.build_id, limit_ns)

    async def sleep(self, build: GuardedBuild) -> None:
        """Its weights' memory is back afterwards. Raises: RunFailed."""
        build.is_asleep = True
        await self._page(m.SLEEP, build, self._run_ns_max)

    async def wake(self, build: GuardedBuild) -> None:
        """Raises: LoadFailed."""
        build.is_asleep = False
        try:
            await self._page(m.WAKE, build, int(_LOAD_S_MAX * NS_PER_S))
        except RunFailed as error:
            raise LoadFailed(build_id=build.build_id, reason=error.reason) from None

    async def _page(self, code: int, build: GuardedBuild, limit_ns: int) -> None:
        pages, fields = self._dispatcher.pages, (str(self._granted_bytes()),)
        ask = self._dispatcher.ask
        await ask(pages, code, build.number, fields, {}, lambda *_: None, build.build_id, limit_ns)

    # -- limits --------------------------------------------------------------------------------------------------------

    def _stop_run(self, channel: int, sequence: int) -> None:
        assert self._control is not None
        with suppress(OSError):
            self._control.send(STOP.pack(channel, sequence))

    def _took(self, count_bytes: int) -> None:
        """More than it was granted it cannot have."""
        beside = count_bytes - sum(build.counted_bytes for build in self.builds.values())
        self.base_bytes = max(self._first_bytes, min(beside, self._first_bytes + self._granted_bytes()))
        self.on_base()

    def _granted_bytes(self) -> int:
        """What the process may allocate beyond what it has by itself: for its builds, and for their runs."""
        return self._run_bytes_max + sum(build.granted_bytes for build in self.builds.values())

    def _watch(self) -> None:
        """While it works."""
        if self._watching is None:
            self._watching = self._loop.call_later(_WATCH_EVERY_S, self._check)

    def _check(self) -> None:
        """Whether it takes more than it was granted, by whatever means, or does not go on."""
        self._watching = None
        self._stopped_looks = self._stopped_looks + 1 if is_stopped(self.pid) else 0
        taken = status_bytes(self.pid, "RssAnon", "RssShmem")
        if self._stopped_looks * _WATCH_EVERY_S >= _STOPPED_S_MAX:
            self._ended("it was stopped by a signal, and did not go on", blamed=[])
        elif taken > self._first_bytes + self._granted_bytes() + _TOLERATED_BYTES:
            self._ended(f"it took {taken} bytes of memory, which are more than it may")
        elif self.is_busy:
            self._watch()
