"""Port `Processor` over all processors of the box: each build runs on those of the kind that it is prepared for, and
never more run at once on the same cores than there are workers for these.

Processors on the same cores are a group, which is one processor to whoever hands out runs (`RunGroup`). A kind whose
runs cannot be pinned is part of every group: whichever gives it a worker leaves it a core.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import LoadFailed, ProcessorLost
from appliance.domain.hardware import PreparedForm, ProcessorDescription, ProcessorStatus
from appliance.domain.request import Tensors
from appliance.domain.states import ProcessorState
from appliance.runtime.ports import Processor, RunGroup, StagedRun, Staging

T = TypeVar("T")


class InService(Processor, Protocol):
    """A processor whose builds live in the service: the port, and what a guard and the box ask of it besides."""

    async def fetch(self, handle: Any) -> None:
        """Read the file of a build that is about to wake, wherever that lives."""
        ...

    def close(self) -> None: ...


class MayGo(InService, Protocol):
    """One that takes no runs for a while, or for good, without the box."""

    @property
    def is_serving(self) -> bool: ...

    def status(self) -> ProcessorStatus: ...


class OnItsCores(MayGo, Protocol):
    """One that runs what others of its kind have loaded."""

    async def settled(self, handle: Any) -> None:
        """Returns when no run of a build is under way here."""
        ...


@dataclass(frozen=True, slots=True)
class OwnCores:
    """A further processor of the first one's kind, on cores of its own. `speed`: relative to the first one's."""

    processor: OnItsCores
    speed: float = 1.0


@dataclass(slots=True, eq=False)
class OnKind:
    """A build and the processor that it is on."""

    processor: InService
    handle: Any
    form: PreparedForm
    lease: Any = None
    kind: str = ""
    copies: dict[InService, Any] = field(default_factory=dict)
    """Other processors of the kind that run it → their own handles of it. Who is not here runs the first one's."""

    @property
    def file(self) -> Any:
        """Where its weights are mapped from, None where they are not."""
        return getattr(self.handle, "file", None)

    @property
    def build_id(self) -> str:
        return self.form.build_id

    def has(self, handle: Any) -> bool:
        """Whether a processor knows it, or a copy of it, by this handle."""
        return any(own is handle for _, own in self.all)

    @property
    def all(self) -> tuple[tuple[InService, Any], ...]:
        """Whatever is in memory of it, and whose that is."""
        return (self.processor, self.handle), *self.copies.items()


class ProcessorGroup:
    """The first one's name and workers are those that it describes. That one serves as long as the box does; others,
    and further ones of its kind on cores of their own, may come and go.
    """

    def __init__(
        self,
        first: InService,
        others: Sequence[MayGo] = (),
        twins: Sequence[OwnCores] = (),
        *,
        clock: Clock | None = None,
        apart: Sequence[str] = (),
        stage: Staging | None = None,
    ) -> None:
        """`others` by kind, on the cores of all, but those of the kinds `apart`, which have a device of their own.
        `clock`: where there are `twins`. `stage`: the first one's.
        """
        self.first = first
        self._stage = stage
        self._others = tuple(others)
        self._apart = frozenset(apart)
        self._kinds: dict[str, InService] = {one.describe().kind: one for one in (first, *others)}
        self._twins = tuple(twins)
        self._on_cores = [OnCores(clock, twin.processor, self._kinds) for twin in twins if clock is not None]
        self._copied: set[OnKind] = set()
        """What every processor of the first kind has a copy of."""

    def describe(self) -> ProcessorDescription:
        return self.first.describe()

    def describe_all(self) -> tuple[ProcessorDescription, ...]:
        """One of each kind, the first one first: what builds are prepared for and measured on."""
        return tuple(processor.describe() for processor in self._kinds.values())

    def groups(self) -> tuple[RunGroup, ...]:
        """Who takes runs at the same time: the first, further ones of its kind, those with a device of their own."""
        described = self.describe()
        shared = {kind: "" for kind in self._kinds if kind != described.kind and kind not in self._apart}
        is_alone = not (self._others or self._twins)  # then builds are known by the first one's handles
        stage = self._stage if is_alone else self.stage
        found = [RunGroup(described.name, described.workers, self, {described.kind: "", **shared}, stage=stage)]
        for twin, on_cores in zip(self._twins, self._on_cores, strict=True):
            own = twin.processor.describe()
            kinds, is_serving = {own.kind: own.name, **shared}, partial(_is_serving, twin.processor)
            found.append(RunGroup(own.name, own.workers, on_cores, kinds, twin.speed, is_serving))
        for one in self._others:
            own = one.describe()
            if own.kind in self._apart:
                found.append(RunGroup(own.name, own.workers, self, {own.kind: ""}, 1.0, partial(_is_serving, one)))
        return tuple(found)

    @property
    def on_cores(self) -> tuple[ProcessorDescription, ...]:
        """The first one, and further ones of its kind."""
        return self.describe(), *(twin.processor.describe() for twin in self._twins)

    @property
    def copies(self) -> Mapping[str, int]:
        """Kind → how often a build of it is in memory."""
        described = self.describe()
        return {described.kind: 1 if described.threads_per_run == 1 else 1 + len(self._twins)}

    def away(self) -> frozenset[str]:
        """Kinds that take no runs now."""
        return frozenset(one.describe().kind for one in self._others if not one.is_serving)

    def statuses(self, runs: int, busy_ms: float) -> tuple[ProcessorStatus, ...]:
        """Of each processor, the first one first. `runs` and `busy_ms` of all together: what the others have not had of
        it was the first one's.
        """
        others = [*(one.status() for one in self._on_cores), *(one.status() for one in self._others)]
        runs -= sum(one.runs for one in others)
        busy_ms -= sum(one.busy_ms for one in others)
        first = ProcessorStatus(self.describe(), ProcessorState.SERVING, "", max(0, runs), max(0.0, busy_ms))
        return (first, *others)

    async def load(self, form: PreparedForm) -> OnKind:
        processor = self._kinds.get(form.kind)
        if processor is None:
            raise LoadFailed(build_id=form.build_id, reason=f"there is no processor of kind {form.kind!r}")
        loaded = OnKind(processor, await processor.load(form), form, kind=form.kind)
        if processor is self.first and self.copies[form.kind] > 1:
            self._copied.add(loaded)
            try:
                for twin in self._twins:  # a session's threads stay on the cores where it was made
                    await self._copy(loaded, twin.processor)
            except BaseException:
                with suppress(Exception):
                    await self.unload(loaded)
                raise
        return loaded

    async def _copy(self, loaded: OnKind, processor: OnItsCores) -> None:
        """Raises: LoadFailed."""
        if not processor.is_serving or processor in loaded.copies:
            return
        try:
            copy = await processor.load(loaded.form)
        except ProcessorLost:  # it has one when it is back
            return
        if loaded in self._copied and processor not in loaded.copies:
            loaded.copies[processor] = copy
        else:  # it was unloaded meanwhile, or copied by whoever came first: a load, and a processor that came back
            await processor.unload(copy)

    def forget_copy(self, processor: OnItsCores, build_id: str) -> None:
        """A processor of the first kind is lost, and drops what it had of a build itself."""
        for loaded in self._copied:
            if loaded.build_id == build_id:
                loaded.copies.pop(processor, None)

    async def copy_again(self, processor: OnItsCores) -> None:
        """A processor of the first kind is back: it has what it lacks of what is in memory. Until then that is run
        there with the first one's threads.
        """
        for loaded in list(self._copied):
            with suppress(LoadFailed):
                await self._copy(loaded, processor)

    def run(
        self, handle: OnKind, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> Awaitable[dict[str, Any]]:
        return handle.processor.run(handle.handle, inputs, outputs, deadline_ns=deadline_ns)

    def run_rows(
        self,
        handle: OnKind,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> Awaitable[list[dict[str, Any]]]:
        return handle.processor.run_rows(handle.handle, requests, counts, outputs, deadline_ns=deadline_ns)

    def stage(
        self,
        handle: Any,
        inputs: Tensors,
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None,
        begin_by_ns: int | None,
    ) -> StagedRun | None:
        """Port `Staging`, of what the first processor runs: the others have threads of their own."""
        if self._stage is None or not isinstance(handle, OnKind) or handle.processor is not self.first:
            return None
        return self._stage(handle.handle, inputs, outputs, deadline_ns=deadline_ns, begin_by_ns=begin_by_ns)

    def run_inline(self, handle: OnKind, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        return handle.processor.run_inline(handle.handle, inputs, outputs)

    async def unload(self, handle: OnKind) -> None:
        """Raises what the last copy does that fails; the others have gone nonetheless."""
        self._copied.discard(handle)
        await self._settled(handle)
        failure: Exception | None = None
        for processor, own in handle.all:
            try:
                await processor.unload(own)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure

    async def _settled(self, handle: OnKind) -> None:
        """A lost processor may still be at a run of it that nobody waits for."""
        for twin in self._twins:
            await twin.processor.settled(handle.handle)

    def can_sleep(self, handle: OnKind) -> bool:
        return all(processor.can_sleep(own) for processor, own in handle.all)

    async def sleep(self, handle: OnKind) -> int:
        await self._settled(handle)
        return sum([await processor.sleep(own) for processor, own in handle.all])

    async def wake(self, handle: OnKind) -> None:
        for processor, own in handle.all:
            await processor.wake(own)

    async def fetch(self, handle: Any) -> None:
        """Also of a build that is in a guard: the page cache is everybody's."""
        await (handle.processor.fetch(handle.handle) if isinstance(handle, OnKind) else self.first.fetch(handle))

    async def read_ahead(self, handle: Any) -> None:
        """Also of a build that is in a guard: the page cache is everybody's."""
        own = isinstance(handle, OnKind)
        await (handle.processor.read_ahead(handle.handle) if own else self.first.read_ahead(handle))

    def wake_ns(self, handle: OnKind) -> int:
        return sum(processor.wake_ns(own) for processor, own in handle.all)

    def close(self) -> None:
        for processor in (*self._kinds.values(), *(twin.processor for twin in self._twins)):
            processor.close()


class OnCores:
    """Port `Runs` of the group of a processor beside the first one of its kind: with what it has run."""

    def __init__(self, clock: Clock, own: OnItsCores, kinds: Mapping[str, InService]) -> None:
        self._clock = clock
        self._own = own
        self._kind = own.describe().kind
        self._kinds = kinds
        self._runs = 0
        self._busy_ns = 0

    def status(self) -> ProcessorStatus:
        return replace(self._own.status(), runs=self._runs, busy_ms=self._busy_ns / NS_PER_MS)

    def run(
        self, handle: OnKind, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> Awaitable[dict[str, Any]]:
        if handle.kind != self._kind:  # on no cores of its own
            return self._kinds[handle.kind].run(handle.handle, inputs, outputs, deadline_ns=deadline_ns)
        own = handle.copies.get(self._own, handle.handle)
        return self.counted(self._own.run(own, inputs, outputs, deadline_ns=deadline_ns))

    def run_rows(
        self,
        handle: OnKind,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> Awaitable[list[dict[str, Any]]]:
        if handle.kind != self._kind:
            processor = self._kinds[handle.kind]
            return processor.run_rows(handle.handle, requests, counts, outputs, deadline_ns=deadline_ns)
        own = handle.copies.get(self._own, handle.handle)
        return self.counted(self._own.run_rows(own, requests, counts, outputs, deadline_ns=deadline_ns))

    def counted(self, run: Awaitable[T]) -> Awaitable[T]:
        """A run on its cores, whoever does it there."""
        under_way = asyncio.ensure_future(run)
        under_way.add_done_callback(partial(self._ran, self._clock.now_ns()))
        return under_way

    def _ran(self, start_ns: int, _: asyncio.Future[Any]) -> None:
        self._runs += 1
        self._busy_ns += self._clock.now_ns() - start_ns


def _is_serving(one: MayGo) -> bool:
    return one.is_serving
