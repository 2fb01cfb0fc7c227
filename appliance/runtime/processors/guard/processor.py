"""Port `Processor` over two homes: builds that were shown to be harmless live in the service, all others in the guard
of the tenant that owns them: one for each kind of processor that they compute on.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import LoadFailed, RunCrashed
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.names import kind_of, owner_of
from appliance.domain.request import Tensors
from appliance.forkserver import ForkServer
from appliance.log import get as get_log
from appliance.runtime.ports import Occupied, Runs, StagedRun, Staging
from appliance.runtime.processors import KINDS
from appliance.runtime.processors.cpu.leases import Lease, Leases
from appliance.runtime.processors.cpu.mapped import CachedFile
from appliance.runtime.processors.cpu.process_memory import memory_of
from appliance.runtime.processors.cpu.session import Loaded, kept_bytes, sleeping_file, weights_path
from appliance.runtime.processors.cpu.waking import WakeRates
from appliance.runtime.processors.group import InService, OnCores, OnKind
from appliance.runtime.processors.guard.folder import copy_form, link_file, link_form, new_folder, unlink
from appliance.runtime.processors.guard.limits import GROUP
from appliance.runtime.processors.guard.process import GuardedBuild, GuardProcess, ShownFile
from appliance.runtime.processors.rows import apart
from appliance.tasks.base import TokenOrder, TokenRows

T = TypeVar("T")
Build = Loaded | OnKind
Home = tuple[str, str]
"""A tenant, and the kind of processor that a guard of its computes on."""
log = get_log("guard")
GUARD_PROGRAM = "appliance.runtime.processors.guard.program"
_ASK_EVERY_NS = 20 * NS_PER_MS
_SWEEPS = 4
"""How often in the time after which an idle guard ends it is looked for them."""
_FILES_SHOWN = 8
_GONE_S = 0.5
"""From the end of a guard until the kernel has its pages back, and fork servers are looked at again."""
_WANTED = "another program opens its file for writing"
_UNMEASURED_FACTOR = 4
"""Bytes of a load assumed per byte of file until it is measured."""


@dataclass(frozen=True, kw_only=True)
class GuardOptions:
    """What the settings say of guards, and where their folders are made."""

    scratch: Path
    """On the file system of the models, so that a form is linked into a guard's folder and not copied."""
    run_s_max: float = 30.0
    run_bytes_max: int = 1 << 30
    processes_max: int = 8
    idle_s: float = 60.0
    workers: int = 0
    """Runs at once, of all groups of processors; 0: those of the processor."""
    cores: tuple[int, ...] = ()
    """Those of all groups; empty: the processor's. Which of them a run is on is the system's choice: the worker that
    hands it out leaves it one."""
    processors: tuple[ProcessorDescription, ...] = ()
    """One of each kind that guards compute on; empty: the processor."""


class GuardedProcessor:
    """Wraps a processor that runs in the service."""

    def __init__(self, inner: InService, clock: Clock, options: GuardOptions) -> None:
        self._inner = inner
        self._clock = clock
        self._options = options
        described = inner.describe()
        kinds = {one.kind: one for one in options.processors or (described,)}
        self._kinds = {kind: one for kind, one in kinds.items() if KINDS[kind].guard is not None}
        self._reads_on = described.kind
        """Where tokenizers are read."""
        self._servers = {kind: ForkServer(GUARD_PROGRAM, kind) for kind in self._kinds}
        self._server_bytes: Mapping[str, int] = {}
        """Kind → what its fork server takes, as told last."""
        self._guards: dict[Home, GuardProcess] = {}
        self._starting: dict[Home, asyncio.Task[GuardProcess]] = {}
        self._users: dict[GuardProcess, int] = {}
        """Of those that run or start; no two share one."""
        self._room = asyncio.Lock()
        """Held while a guard that is wanted looks for room: one that finds some takes it before another looks."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._counting: asyncio.TimerHandle | None = None
        self._count: asyncio.Task[None] | None = None
        self._rates = WakeRates()
        """Of guards: there is a message each way."""
        self._leases = Leases()
        self._leases.on_asked = self._is_wanted
        self.on_lost: Callable[[str], None] = lambda build_id: None
        """Told of each build that has gone with its guard, by id."""
        self.on_crash: Callable[[str, str], None] = lambda build_id, reason: None
        """Told of each build whose run or load ended its guard, and how."""
        self.on_base: Callable[[Mapping[Home, int]], None] = lambda base_bytes: None
        """Told what each guard takes by itself, whenever that changes."""
        self.room_to_begin: Callable[[str, str, int], AbstractAsyncContextManager[None]] = lambda *_: nullcontext()
        """Entered with the tenant, the kind and the bytes of a guard that is about to begin, once there is room for it;
        left when it has told what it takes. Raises: OutOfMemory, ShuttingDown."""
        self.on_servers: Callable[[Mapping[str, int]], None] = lambda server_bytes: None
        """Told what fork servers take, by kind, which are nobody's."""
        self.on_unfit: Callable[[str], None] = lambda build_id: None
        """Told of each build whose prepared form is to be used no more, by id: another program waits to write it, or
        the disk does not give it. What is loaded of it must go.
        """

    @property
    def forkserver_pid(self) -> int:
        """Of guards on the first kind; 0 before the first of them was needed, and where that has none."""
        server = self._servers.get(self._reads_on)
        return 0 if server is None else server.pid

    def describe(self) -> ProcessorDescription:
        return self._inner.describe()

    async def load(self, form: PreparedForm) -> Build | GuardedBuild:
        lease = self._leases.take(form.build_id, weights_path(form)) if form.optimised else None
        try:
            load = self._inner.load(form) if form.guarded_for is None else self._load_guarded(form, form.guarded_for)
            handle = await load
        except BaseException as error:
            self._leases.give(lease)
            if isinstance(error, LoadFailed) and form.optimised:
                await self._look_for_damage(form.build_id, sleeping_file(form, form.size_bytes))
            raise
        handle.lease = lease
        self._look_who_waits(lease)
        return handle

    async def _load_guarded(self, form: PreparedForm, tenant: str) -> GuardedBuild:
        try:
            need_bytes = max(form.resident_bytes or 0, form.peak_bytes or 0) or _UNMEASURED_FACTOR * form.size_bytes
            async with self._loading((tenant, form.kind)) as guard:
                try:
                    build = await self._load_from(guard, link_form, form, need_bytes)
                except LoadFailed as refused:
                    if not form.optimised or guard.has_ended:
                        raise
                    try:
                        build = await self._load_from(guard, copy_form, form, need_bytes)
                    except (LoadFailed, OSError):
                        raise refused from None
        except (OSError, TimeoutError, ValueError) as error:
            raise LoadFailed(build_id=form.build_id, reason=f"no guard could be started: {error}") from error
        mapped_bytes = min(build.mapped_bytes, form.size_bytes)  # that is what it says, and it may lie
        there = str(build.guard.folder / build.path.lstrip("/"))  # the pages of a copy are others than the form's
        build.file = sleeping_file(replace(form, path=there), mapped_bytes)
        build.kept_bytes = kept_bytes(form, mapped_bytes)
        return build

    async def _load_from(
        self, guard: GuardProcess, link: Callable[[PreparedForm, Path], str], form: PreparedForm, need_bytes: int
    ) -> GuardedBuild:
        """Raises: LoadFailed, OSError; then nothing stays in the guard's folder."""
        path = await self._linked(guard, link, form)
        try:
            return await guard.load(
                form.build_id,
                path,
                optimised=form.optimised,
                computes_in=form.computes_in,
                need_bytes=need_bytes,
                resident_bytes=form.resident_bytes or form.size_bytes,
            )
        except LoadFailed:
            await asyncio.to_thread(unlink, path, guard.folder)
            raise

    def run(
        self,
        handle: Build | GuardedBuild | None,
        inputs: Tensors,
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> Awaitable[dict[str, Any]]:
        if isinstance(handle, GuardedBuild):
            return handle.guard.run(handle, inputs, outputs, deadline_ns)
        if handle is None:
            lost: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            lost.set_exception(_ended_before())
            return lost
        return self._inner.run(handle, inputs, outputs, deadline_ns=deadline_ns)

    def run_rows(
        self,
        handle: Build | GuardedBuild | None,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> Awaitable[list[dict[str, Any]]]:
        if handle is None or isinstance(handle, GuardedBuild):
            return self._run_rows_guarded(handle, requests, counts, outputs, deadline_ns)
        return self._inner.run_rows(handle, requests, counts, outputs, deadline_ns=deadline_ns)

    async def _run_rows_guarded(
        self,
        handle: GuardedBuild | None,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        deadline_ns: int | None,
    ) -> list[dict[str, Any]]:
        if handle is None:
            raise _ended_before()
        return apart(await handle.guard.run_rows(handle, requests, outputs, deadline_ns), counts)

    def staging(self, stage: Staging | None) -> Staging | None:
        """`stage`, of what lives in the service: a guard has one run at a time, and begins the next when it is sent."""

        def staged(handle: Any, *arguments: Any, **limits: Any) -> StagedRun | None:
            assert stage is not None
            return None if handle is None or isinstance(handle, GuardedBuild) else stage(handle, *arguments, **limits)

        return None if stage is None else staged

    def runs_of(self, group: int, runs: Runs) -> Runs:
        """Of one of several groups of processors, by index: `runs` of what lives in the service, and of guards."""
        return _OfGroup(self, runs) if group else self

    def run_inline(self, handle: Build, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        return self._inner.run_inline(handle, inputs, outputs)

    async def unload(self, handle: Build | GuardedBuild) -> None:
        if isinstance(handle, GuardedBuild):
            await handle.guard.unload(handle)
            await asyncio.to_thread(unlink, handle.path, handle.guard.folder)
        else:
            await self._inner.unload(handle)
        self._leases.give(handle.lease)

    def can_sleep(self, handle: Build | GuardedBuild) -> bool:
        return handle.file is not None

    async def sleep(self, handle: Build | GuardedBuild) -> int:
        if not isinstance(handle, GuardedBuild):
            return await self._inner.sleep(handle)
        await handle.guard.sleep(handle)
        return handle.kept_bytes

    async def wake(self, handle: Build | GuardedBuild) -> None:
        try:
            if isinstance(handle, GuardedBuild):
                with self._rates.timed(handle.file) as missing_bytes:
                    if missing_bytes:
                        await self._inner.fetch(handle)
                    await handle.guard.wake(handle)
            else:
                await self._inner.wake(handle)
        except LoadFailed:
            await self._look_for_damage(handle.build_id, handle.file)
            raise
        self._look_who_waits(handle.lease)

    async def read_ahead(self, handle: Build | GuardedBuild) -> None:
        await self._inner.read_ahead(handle)  # the page cache is everybody's

    def wake_ns(self, handle: Build | GuardedBuild) -> int:
        if isinstance(handle, GuardedBuild):
            return self._rates.expected_ns(handle.file)
        return self._inner.wake_ns(handle)

    async def tokenize(
        self, order: TokenOrder, build_id: str, tenant: str, on_time: Callable[[int], None] = lambda took_ns: None
    ) -> TokenRows:
        """Port `TextReader`."""
        try:
            home = tenant, self._reads_on
            guard = await self._guard_of(home)
            while guard.has_ended:  # before anything was asked of it, for others that needed one
                guard = await self._guard_of(home)
            texts = np.array(order.texts, np.object_)
            async with self._shown(guard, Path(order.file)) as path:
                return await guard.tokenize(path, texts, order.tokens_max, build_id, on_time)
        except (OSError, TimeoutError, ValueError) as error:
            raise LoadFailed(build_id=build_id, reason=f"no guard could read the texts: {error}") from error

    def idle_bytes(self, wanted: Collection[str]) -> int:
        """What guards and fork servers take by themselves that `end_idle` could end."""
        guards = self._idle_guards(wanted)
        return sum(guard.base_bytes for guard in guards) + sum(self._idle_servers(wanted, guards).values())

    def occupied(self, wanted: Collection[str]) -> list[Occupied]:
        """Guards with something awake that have none of these builds, and compute nothing."""
        return [
            Occupied(
                [build.build_id for build in guard.builds.values()],
                guard.base_bytes,
                partial(self._end, guard, "its memory was needed"),
            )
            for guard in self._unwanted_guards(wanted)
            if not guard.is_busy and not guard.is_idle
        ]

    def _idle_guards(self, wanted: Collection[str]) -> list[GuardProcess]:
        """Guards with nothing awake that hold none of the builds `wanted`."""
        return [guard for guard in self._unwanted_guards(wanted) if guard.is_idle]

    def _unwanted_guards(self, wanted: Collection[str]) -> list[GuardProcess]:
        """Guards that hold none of the builds `wanted`."""
        # Whoever waits for one that starts would start the next, and that would be ended as idle, too.
        homes = {*((owner_of(build_id)[1], kind_of(build_id)) for build_id in wanted), *self._starting}
        return [guard for home, guard in self._guards.items() if home not in homes]

    def _idle_servers(self, wanted: Collection[str], idle: Collection[GuardProcess]) -> dict[str, int]:
        """Kinds whose fork server is needed for none of the builds `wanted`, and for no guard but those that are idle,
        and what it takes.
        """
        needed = {kind_of(build_id) for build_id in wanted if owner_of(build_id)[1] is not None}
        needed |= {kind for _tenant, kind in self._starting}
        needed |= {guard.kind for guard in self._guards.values() if guard not in idle}
        return {kind: taken for kind, taken in self._server_bytes.items() if taken and kind not in needed}

    def end_idle(self, wanted: Collection[str]) -> bool:
        """End a guard with nothing awake, that has none of the builds `wanted`, or where there is none a fork server
        that is needed for none; whether there was one.

        Of several guards one that holds nothing, and of those the one unused longest. The next guard begins its fork
        server anew.
        """
        idle = self._idle_guards(wanted)
        if idle:
            self._end(min(idle, key=lambda guard: (bool(guard.builds), guard.last_used_ns)), "its memory was needed")
            return True
        for kind in self._idle_servers(wanted, ()):
            log.info("fork server ended", kind=kind, reason="its memory was needed")
            self._servers[kind].close()
            self._tell_servers({**self._server_bytes, kind: 0})
            return True
        return False

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._counting is not None:
            self._counting.cancel()
        if self._count is not None:
            self._count.cancel()
        for guard in list(self._guards.values()):
            self._drop(guard)
            guard.end()
        for server in self._servers.values():
            server.close()
        self._inner.close()
        self._leases.close()

    def _look_who_waits(self, lease: Lease | None) -> None:
        """Who was told while it came could not let it go: once it is there, tell again."""
        if lease is not None and lease.is_asked_for:
            asyncio.get_running_loop().call_soon(self._is_wanted, lease.build_id)

    def _is_wanted(self, build_id: str) -> None:
        log.warning("prepared form given up", build_id=build_id, reason=_WANTED)
        self.on_unfit(build_id)

    async def _look_for_damage(self, build_id: str, file: CachedFile | None) -> None:
        """After a failure: whether it was the disk."""
        if file is not None and not await asyncio.to_thread(file.read_ahead):
            log.warning("prepared form given up", build_id=build_id, reason="its weights cannot be read")
            self.on_unfit(build_id)

    @asynccontextmanager
    async def _shown(self, guard: GuardProcess, file: Path) -> AsyncIterator[str]:
        """The path of a file that the guard sees meanwhile, and for as long as few others came after it: one that a
        guard meets again by the same path it has read already.
        """
        shown = guard.files.get(file)
        if shown is None:
            async with guard.loading:  # a guard that is busy does not end as idle
                shown = guard.files.get(file)
                if shown is None:
                    path = await self._linked(guard, link_file, file)
                    shown = guard.files[file] = ShownFile(path)
        shown.users += 1
        try:
            yield shown.path
        finally:
            shown.users -= 1
            for known, one in list(guard.files.items())[: max(0, len(guard.files) - _FILES_SHOWN)]:
                if not one.users:
                    del guard.files[known]
                    await asyncio.to_thread(unlink, one.path, guard.folder)

    @asynccontextmanager
    async def _loading(self, home: Home) -> AsyncIterator[GuardProcess]:
        """A guard that does not end as idle meanwhile. Raises: as `_guard_of`."""
        while True:
            guard = await self._guard_of(home)
            async with guard.loading:
                if not guard.has_ended:  # before it was held, for others that needed one
                    yield guard
                    return

    async def _linked(self, guard: GuardProcess, link: Callable[[T, Path], str], what: T) -> str:
        """Put something into the folder of a guard. Raises: OSError."""
        try:
            return await asyncio.to_thread(link, what, guard.folder)
        finally:
            if guard.has_ended:  # and its folder was removed meanwhile, but not what came into it after
                await asyncio.to_thread(shutil.rmtree, guard.folder, ignore_errors=True)

    # -- guards --------------------------------------------------------------------------------------------------------

    async def _guard_of(self, home: Home) -> GuardProcess:
        """A tenant's guard on a kind, started where there is none. Raises: OSError, TimeoutError, ValueError."""
        guard = self._guards.get(home)
        if guard is not None:
            return guard
        starting = self._starting.get(home)
        if starting is None:
            if home[1] not in self._kinds:
                raise ValueError(f"none computes on {home[1]!r}")
            starting = self._starting[home] = asyncio.create_task(self._start(*home))
            starting.add_done_callback(lambda _: self._starting.pop(home, None))
        return await asyncio.shield(starting)

    async def _start(self, tenant: str, kind: str) -> GuardProcess:
        options, described = self._options, self._kinds[kind]
        described = replace(described, cores=options.cores or described.cores)
        in_guard = KINDS[kind].guard
        assert in_guard is not None, "it is one of those that guards compute on"
        folder = await asyncio.to_thread(lambda: new_folder(options.scratch, in_guard.looked_for()))
        guard = GuardProcess(
            self._clock,
            tenant,
            kind,
            folder,
            run_channels=options.workers or described.workers,
            run_s_max=options.run_s_max,
            run_bytes_max=options.run_bytes_max,
        )
        try:
            async with self._room:
                await self._make_room()
                self._users[guard] = user = next(one for one in count(GROUP + 1) if one not in self._users.values())
            async with self.room_to_begin(tenant, kind, in_guard.base_bytes):
                self._servers[kind].start()
                await guard.start(self._servers[kind], user, described)
                guard.on_end = self._has_ended
                server_bytes = await self._measured_servers()
                if guard.has_ended:
                    raise ConnectionResetError("a guard ended as soon as it had begun")
                self._guards[tenant, kind] = guard
                guard.on_base = self._tell_base
                self._tell_base()
                self._tell_servers(server_bytes)  # in one step: the room that was promised was for both
        except BaseException:
            self._users.pop(guard, None)
            guard.end()
            if self._servers[kind].pid:  # it may have begun for this guard
                self._count_servers_soon()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        if self._sweeping is None:
            self._sweep()
        log.info("guard started", tenant_id=tenant, kind=kind, base_bytes=guard.base_bytes, **guard.confinement)
        return guard

    async def _measured_servers(self) -> dict[str, int]:
        """What fork servers take now: pages that guards shared with them are theirs alone when those have ended."""
        pids = {kind: server.pid for kind, server in self._servers.items()}
        taken = {kind: await asyncio.to_thread(_pss_bytes, pid) for kind, pid in pids.items()}
        return {kind: taken[kind] if server.pid == pids[kind] else 0 for kind, server in self._servers.items()}

    async def _count_servers(self) -> None:
        self._tell_servers(await self._measured_servers())

    def _tell_servers(self, server_bytes: Mapping[str, int]) -> None:
        self._server_bytes = server_bytes
        self.on_servers(server_bytes)

    async def _make_room(self) -> None:
        """Where there are as many guards as there may be, the one unused longest ends; while all work, wait."""
        while len(self._users) >= self._options.processes_max:
            idle = [guard for guard in self._guards.values() if not guard.is_busy]
            if idle:
                self._end(min(idle, key=lambda guard: guard.last_used_ns), "others need one")
            else:
                await self._clock.sleep_until_ns(self._clock.now_ns() + _ASK_EVERY_NS)

    def _sweep(self) -> None:
        """End those that have held nothing for long, and look again while there are any."""
        self._sweeping = None
        before_ns = self._clock.now_ns() - int(self._options.idle_s * NS_PER_S)
        for guard in list(self._guards.values()):
            if not guard.builds and not guard.is_busy and guard.last_used_ns <= before_ns:
                self._end(guard, "it was idle")
        if self._guards:
            self._count_servers_soon()
            delay_s = self._options.idle_s / _SWEEPS
            self._sweeping = asyncio.get_running_loop().call_later(delay_s, self._sweep)

    def _count_servers_soon(self) -> None:
        if self._counting is None:
            self._counting = asyncio.get_running_loop().call_later(_GONE_S, self._begin_to_count)

    def _begin_to_count(self) -> None:
        self._counting = None
        self._count = asyncio.create_task(self._count_servers(), name="count fork servers")

    def _end(self, guard: GuardProcess, reason: str) -> None:
        log.info("guard ended", tenant_id=guard.tenant, kind=guard.kind, reason=reason)
        self._drop(guard)
        guard.end()
        self._count_servers_soon()

    def _has_ended(self, guard: GuardProcess, culprits: list[str], reason: str) -> None:
        log.warning("guard ended", tenant_id=guard.tenant, kind=guard.kind, reason=reason, running=culprits)
        self._drop(guard)
        self._count_servers_soon()
        for build_id in sorted(set(culprits)):
            self.on_crash(build_id, reason)

    def _drop(self, guard: GuardProcess) -> None:
        """Its builds are gone."""
        if self._guards.get((guard.tenant, guard.kind)) is guard:
            del self._guards[guard.tenant, guard.kind]
        for build in list(guard.builds.values()):
            self._leases.give(build.lease)
            self.on_lost(build.build_id)
        guard.builds.clear()
        self._users.pop(guard, None)
        self._tell_base()
        shutil.rmtree(guard.folder, ignore_errors=True)

    def _tell_base(self) -> None:
        self.on_base({home: guard.base_bytes for home, guard in self._guards.items()})


class _OfGroup:
    """Port `Runs` of one of several groups of processors."""

    def __init__(self, guarded: GuardedProcessor, runs: Runs) -> None:
        self._guarded, self._runs = guarded, runs

    def run(
        self,
        handle: Build | GuardedBuild | None,
        inputs: Tensors,
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> Awaitable[dict[str, Any]]:
        if handle is not None and not isinstance(handle, GuardedBuild):
            return self._runs.run(handle, inputs, outputs, deadline_ns=deadline_ns)
        return self._counted(self._guarded.run(handle, inputs, outputs, deadline_ns=deadline_ns))

    def run_rows(
        self,
        handle: Build | GuardedBuild | None,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> Awaitable[list[dict[str, Any]]]:
        if handle is not None and not isinstance(handle, GuardedBuild):
            return self._runs.run_rows(handle, requests, counts, outputs, deadline_ns=deadline_ns)
        return self._counted(self._guarded.run_rows(handle, requests, counts, outputs, deadline_ns=deadline_ns))

    def _counted(self, run: Awaitable[T]) -> Awaitable[T]:
        return self._runs.counted(run) if isinstance(self._runs, OnCores) else run


def _ended_before() -> RunCrashed:
    return RunCrashed(variant_id="", reason="it has ended before")


def _pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process; 0 where the process has gone. Takes a millisecond."""
    try:
        return memory_of("Pss", pid) if pid else 0
    except OSError:
        return 0
