"""An emulated processor: loads and runs take the time that the profile says, and memory is counted as a device would.

It implements the port `Processor` of the runtime. It has no mercy: more memory than there is, more runs than workers or
a run on what is not loaded are errors of the engine, and raise `Broken`.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from appliance.domain.errors import LoadFailed, ProcessorLost
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.names import kind_of
from appliance.domain.request import Tensors
from appliance.lab.loop import VirtualClock, wake


class Broken(Exception):
    """The engine did what no device could do; the simulation is void."""


@dataclass(frozen=True, slots=True)
class BuildCost:
    """What one build costs here.

    `run_ns[(batch, concurrency)]`: a run of that batch while so many runs are under way.
    """

    applications: tuple[str, ...]
    resident_bytes: int
    peak_bytes: int
    load_ns: int
    unload_ns: int
    run_ns: Mapping[tuple[int, int], int]
    served_ns: tuple[int, ...] = ()
    """Runs of one item as a box has seen them, beside whatever ran at the time; one of them at random goes before
    `run_ns`, and makes a batch as much longer or shorter.
    """
    asleep_bytes: int | None = None
    """None: it cannot sleep."""
    sleep_ns: int = 0
    wake_ns: int = 0
    run_bytes: Mapping[int, int] = field(default_factory=dict)
    """Bytes that runs take beside the build, by batch in ascending order."""

    def run_bytes_of(self, batch: int) -> int:
        """Return the bytes of a run: those of the next larger batch that is known, else of the largest."""
        return next(
            (count for rows, count in self.run_bytes.items() if rows >= batch), max(self.run_bytes.values(), default=0)
        )

    def run_ns_of(self, batch: int, concurrency: int) -> int:
        """As profiled for the nearest larger batch and concurrency; beyond the largest batch in proportion, beyond
        the largest concurrency as that.
        """
        levels = sorted({c for _, c in self.run_ns})
        level = next((c for c in levels if c >= concurrency), levels[-1])
        batches = sorted(b for b, c in self.run_ns if c == level)
        nearest = next((b for b in batches if b >= batch), batches[-1])
        return self.run_ns[nearest, level] * max(batch, nearest) // nearest


@dataclass(slots=True)
class Ailments:
    """What is wrong with the processor now; the faults of a scenario switch it."""

    slow_factors: list[float] = field(default_factory=list)
    """Each makes loads and runs that start now take so many times as long."""
    failing_applications: list[str] = field(default_factory=list)
    """Applications by name whose loads fail; a name is there once for each fault that says so."""
    losses: int = 0
    """Faults under which the processor is lost now."""


@dataclass(eq=False, slots=True)
class Handle:
    """A build in memory."""

    build_id: str
    cost: BuildCost
    is_live: bool = True
    is_asleep: bool = False
    is_lost: bool = False
    """It went with its processors."""
    running: int = 0


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Parts of a budget in bytes; they add up to the budget."""

    builds: int
    processes: int
    runs: int
    free: int
    """Free bytes; below zero where runs take memory that the machine has beside the budget."""


class EmulatedMemory:
    """What the builds of one processor, or of several, take of a memory that has an end."""

    def __init__(self, size_bytes: int, overhead_bytes: int = 0) -> None:
        """`size_bytes`: memory for builds; `overhead_bytes`: the constant memory of guards and others."""
        self._size_bytes = size_bytes
        self._overhead_bytes = overhead_bytes
        self._planners_bytes = 0
        self._runs_bytes = 0
        self.used_bytes = 0
        self.fullest = self.parts()
        """Parts of the budget at the moment when least was free."""
        self._held: dict[str, int] = {}
        self.present: dict[str, Handle | None] = {}
        """Builds that were asked for and not given back yet; None: it is being loaded, or waits for that without
        memory."""
        self.peak_bytes = 0

    def hold(self, build_id: str, size: int) -> None:
        """A build takes so much from now on."""
        self.used_bytes += size - self._held.pop(build_id, 0)
        if size:
            self._held[build_id] = size
        if self.used_bytes + self._planners_bytes > self._size_bytes:
            taken = self.used_bytes + self._planners_bytes
            raise Broken(f"{taken} bytes in use where there are {self._size_bytes}")
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        self._note()

    def set_planners(self, size: int) -> None:
        """Set the bytes of planner processes."""
        self._planners_bytes = size
        self._note()

    def add_run(self, size: int) -> None:
        """Add bytes of a run, or subtract them where `size` is negative."""
        self._runs_bytes += size
        self._note()

    def _note(self) -> None:
        parts = self.parts()
        if parts.free < self.fullest.free:
            self.fullest = parts

    def held(self) -> Mapping[str, int]:
        """Return the present bytes of each build."""
        return self._held

    def parts(self) -> MemoryParts:
        """Return the present parts of the budget."""
        processes = self._overhead_bytes + self._planners_bytes
        free = self._size_bytes - self.used_bytes - self._planners_bytes - self._runs_bytes
        return MemoryParts(self.used_bytes, processes, self._runs_bytes, free)

    def lose(self, kind: str) -> list[str]:
        """What is there for a kind of processor is gone; returns that. What is on its way there fails by itself."""
        gone = [(build_id, handle) for build_id, handle in self.present.items() if kind_of(build_id) == kind and handle]
        for build_id, handle in gone:
            handle.is_lost = True
            del self.present[build_id]
            self.hold(build_id, 0)
        return [build_id for build_id, _handle in gone]


class EmulatedProcessor:
    """Port `Processor` in virtual time: so many loads at a time and one unload, in the order in which they were asked
    for, as on the real one.

    A lost processor breaks off its loads and runs and refuses more until it is back; what is unloaded goes all the
    same.
    """

    def __init__(
        self,
        clock: VirtualClock,
        description: ProcessorDescription,
        costs: Mapping[str, BuildCost],
        memory: EmulatedMemory | int,
        loads_parallel_max: int,
        seed: int = 0,
    ) -> None:
        """`costs` by build. `memory`: shared with other processors, or so many bytes of its own. `seed` of what is
        drawn from run times that were seen.
        """
        self._clock = clock
        self._description = description
        self._costs = costs
        self.memory = EmulatedMemory(memory) if isinstance(memory, int) else memory
        self._loads = asyncio.Semaphore(loads_parallel_max)
        self._unloads = asyncio.Semaphore(1)
        self._draws = {build_id: Random(f"{seed}/runs/{build_id}") for build_id, c in costs.items() if c.served_ns}
        """One for each build: how often others run changes nothing."""
        self._spending: dict[asyncio.Future[None], None] = {}
        """In the order of starting."""
        self.ailments = Ailments()
        self.running = 0
        self.busy_ns = 0
        """Sum over the workers."""
        self.batches = 0
        self.items = 0

    def describe(self) -> ProcessorDescription:
        return self._description

    async def load(self, form: PreparedForm) -> Handle:
        build_id = form.build_id
        if build_id not in self._costs:  # the processors that run it are away
            raise ProcessorLost(processor=self._description.name)
        if build_id in self.memory.present:
            raise Broken(f"{build_id} is loaded twice")
        self.memory.present[build_id] = None
        try:
            async with self._loads:
                handle = await self._load(build_id, self._costs[build_id])
        except BaseException:
            del self.memory.present[build_id]
            raise
        self.memory.present[build_id] = handle
        return handle

    async def _load(self, build_id: str, cost: BuildCost) -> Handle:
        self.memory.hold(build_id, cost.peak_bytes)
        try:
            await self._spend(cost.load_ns)
            if any(a in self.ailments.failing_applications for a in cost.applications):
                raise LoadFailed(build_id=build_id, reason="a fault of the scenario")
        except BaseException:
            self.memory.hold(build_id, 0)
            raise
        self.memory.hold(build_id, cost.resident_bytes)
        return Handle(build_id, cost)

    async def run(
        self, handle: Handle, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> dict[str, Any]:
        await self._run(handle, next((int(tensor.shape[0]) for tensor in inputs.values()), 1))
        return dict.fromkeys(outputs or (), next(iter(inputs.values()), None))

    async def run_rows(
        self,
        handle: Handle,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> list[dict[str, Any]]:
        await self._run(handle, sum(counts))
        return [{} for _ in requests]

    async def _run(self, handle: Handle, batch: int) -> None:
        self._check_there(handle)
        if not handle.is_live or handle.is_asleep:
            raise Broken(f"{handle.build_id} runs but is {'asleep' if handle.is_asleep else 'not loaded'}")
        if self.running >= self._description.workers:
            raise Broken("more runs at once than workers")
        start_ns, run_bytes = self._clock.now_ns(), handle.cost.run_bytes_of(batch)
        self.running += 1
        handle.running += 1
        self.memory.add_run(run_bytes)
        try:
            await self._spend(self._run_ns(handle, batch))
        finally:
            self.running -= 1
            handle.running -= 1
            self.memory.add_run(-run_bytes)
            self.busy_ns += self._clock.now_ns() - start_ns
        self.batches += 1
        self.items += batch

    def run_inline(self, handle: Handle, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        raise Broken("virtual time passes only for those who wait")

    def _run_ns(self, handle: Handle, batch: int) -> int:
        """What slowed runs of one item that were seen slows batches as much."""
        cost = self._costs[handle.build_id]
        took_ns = cost.run_ns_of(batch, self.running)
        if handle.build_id not in self._draws:
            return took_ns
        seen_ns = self._draws[handle.build_id].choice(cost.served_ns)
        return seen_ns if batch == 1 else round(took_ns * seen_ns / max(1, cost.run_ns_of(1, self.running)))

    async def unload(self, handle: Handle) -> None:
        if handle.is_lost:
            return
        if not handle.is_live or handle.running:
            raise Broken(f"{handle.build_id} is unloaded {'while it runs' if handle.running else 'twice'}")
        handle.is_live = False
        async with self._unloads:
            await self._clock.sleep_until_ns(self._clock.now_ns() + handle.cost.unload_ns)
        if not handle.is_lost:
            self.memory.hold(handle.build_id, 0)
            del self.memory.present[handle.build_id]

    def can_sleep(self, handle: Handle) -> bool:
        return handle.cost.asleep_bytes is not None

    async def sleep(self, handle: Handle) -> int:
        if not handle.is_live or handle.running or handle.cost.asleep_bytes is None:
            raise Broken(f"{handle.build_id} is sent to sleep {'while it runs' if handle.running else 'and cannot'}")
        if not handle.is_asleep:
            handle.is_asleep = True
            async with self._unloads:
                takes_none = 0 in self.ailments.slow_factors
                await self._clock.sleep_until_ns(self._clock.now_ns() + (0 if takes_none else handle.cost.sleep_ns))
            self.memory.hold(handle.build_id, 0 if handle.is_lost else handle.cost.asleep_bytes)
        return handle.cost.asleep_bytes

    async def wake(self, handle: Handle) -> None:
        self._check_there(handle)
        if not handle.is_live:
            raise Broken(f"{handle.build_id} is woken but not loaded")
        if handle.is_asleep:
            self.memory.hold(handle.build_id, handle.cost.resident_bytes)
            try:
                await self._spend(handle.cost.wake_ns)
            except BaseException:
                self.memory.hold(handle.build_id, 0 if handle.is_lost else handle.cost.asleep_bytes or 0)
                raise
            handle.is_asleep = False

    async def read_ahead(self, handle: Handle) -> None:
        """Files are in the page cache here."""

    def wake_ns(self, handle: Handle) -> int:
        return handle.cost.wake_ns

    def lose(self) -> None:
        """Break off every load and run under way; more of them fail until `restore`."""
        self.ailments.losses += 1
        for alarm in self._spending:
            wake(alarm)

    def restore(self) -> None:
        """Undo one `lose`. What was in memory is still there."""
        self.ailments.losses -= 1

    def _check_there(self, handle: Handle) -> None:
        """Raises: ProcessorLost, where it was lost with that."""
        if handle.is_lost:
            raise ProcessorLost(processor=self._description.name)

    async def _spend(self, ns: int) -> None:
        """Let `ns` pass, more when the processor is slowed down. Raises: ProcessorLost at the moment of the loss."""
        if self.ailments.losses:
            raise ProcessorLost(processor=self._description.name)
        alarm = self._clock.alarm(self._clock.now_ns() + int(ns * math.prod(self.ailments.slow_factors)))
        self._spending[alarm] = None
        try:
            await alarm
        finally:
            del self._spending[alarm]
        if self.ailments.losses:
            raise ProcessorLost(processor=self._description.name)
