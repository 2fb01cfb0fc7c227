"""A processor that takes time and memory as told, and complains when it is used against the rules of its port."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import ProcessorLost, RunStopped
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.request import Tensors
from appliance.lab.loop import VirtualLoop
from appliance.runtime.processors.rows import apart, together


@dataclass
class Cost:
    """What one build costs; `failures` are raised by its next loads, one each."""

    resident_bytes: int = 10
    peak_bytes: int = 0
    """While it loads; at least what is resident afterwards."""
    load_ms: float = 100
    run_ms: float = 10
    run_ms_by_batch: Mapping[int, float] = field(default_factory=dict)
    """Of runs of more rows; absent: as `run_ms`."""
    unload_ms: float = 5
    asleep_bytes: int | None = None
    """None: it cannot sleep."""
    sleep_ms: float = 2
    wake_ms: float = 3
    failures: list[Exception] = field(default_factory=list)
    wake_failures: list[Exception] = field(default_factory=list)
    """Raised by its next wakes, one each."""
    sleep_failures: list[Exception] = field(default_factory=list)
    """The same when it goes to sleep: its process has ended."""

    def __post_init__(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self.resident_bytes)


@dataclass(eq=False)
class Handle:
    """A build in this processor's memory."""

    build_id: str
    is_live: bool = True
    is_asleep: bool = False
    running: int = 0


def doubled(inputs: Tensors) -> dict[str, Any]:
    """The default model: `y` = 2 × `x`."""
    return {"y": inputs["x"] * 2}


class FakeProcessor:
    """Port `Processor` on the clock. `on_memory` is called whenever the bytes in use change."""

    def __init__(
        self,
        clock: Clock,
        costs: Mapping[str, Cost] | None = None,
        *,
        kind: str = "cpu",
        name: str = "",
        slowness: float = 1.0,
        workers: int = 1,
        model: Callable[[Tensors], dict[str, Any]] = doubled,
        on_memory: Callable[[int], None] = lambda used: None,
    ) -> None:
        self._clock = clock
        self.costs = dict(costs or {})
        self.model = model
        self.on_memory = on_memory
        self.kind = kind
        self.name = name or ("fake" if kind == "cpu" else kind)
        self.slowness = slowness
        """Times what runs cost they take here."""
        self.workers = workers
        self.threads = 1
        self.stops_runs = False
        """At their deadlines."""
        self.is_gone = False
        """Runs and loads end with ProcessorLost."""
        self.memory: dict[str, int] = {}
        """Bytes in use by build."""
        self.loads: Counter[str] = Counter()
        self.unloads: Counter[str] = Counter()
        self.sleeps: Counter[str] = Counter()
        self.wakes: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        """Files read ahead, by build."""
        self.disk_ms: dict[str, float] = {}
        """Builds whose file is not in the page cache, and what a wake takes then."""
        self.ran: list[Tensors] = []
        """Inputs of every run, in the order of starting."""
        self.ran_at_ns: list[int] = []
        """When each of them started."""
        self.ran_for: list[Sequence[Tensors]] = []
        """Inputs of the requests of each of them."""
        self.running = 0
        self.under_way = 0
        """Loads, runs, unloads, sleeps and wakes that have begun and not ended."""
        self.renewed = 0
        self.cores: tuple[int, ...] = ()

    def renew(self) -> None:
        self.renewed += 1

    def describe(self) -> ProcessorDescription:
        return ProcessorDescription(
            self.name, self.kind, self.workers, self.threads, "host", f"{self.kind}-1", self.cores
        )

    async def load(self, form: PreparedForm) -> Handle:
        build_id = form.build_id
        cost = self._cost(build_id)
        assert build_id not in self.memory, f"{build_id} is in memory already"
        self.loads[build_id] += 1
        self._hold(build_id, cost.peak_bytes)
        try:
            await self._sleep(cost.load_ms)
            self._check_there()
            if cost.failures:
                raise cost.failures.pop(0)
        except BaseException:
            self._drop(build_id)
            raise
        self._hold(build_id, cost.resident_bytes)
        return Handle(build_id)

    async def run(
        self, handle: Handle, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> dict[str, Any]:
        return await self._run(handle, inputs, [inputs], outputs, deadline_ns)

    async def _run(
        self,
        handle: Handle,
        inputs: Tensors,
        requests: Sequence[Tensors],
        outputs: Sequence[str] | None,
        deadline_ns: int | None,
    ) -> dict[str, Any]:
        assert self.running < self.workers, "more runs at once than workers"
        self._begin(handle, inputs, requests)
        self.running += 1
        handle.running += 1
        try:
            cost = self._cost(handle.build_id)
            rows = next((array.shape[0] for array in inputs.values() if array.ndim), 1)
            await self._spend(handle, self.slowness * cost.run_ms_by_batch.get(rows, cost.run_ms), deadline_ns)
            self._check_there()
            result = self.model(inputs)
        finally:
            self.running -= 1
            handle.running -= 1
        assert handle.is_live, f"{handle.build_id} was unloaded while it ran"
        return result if outputs is None else {name: result[name] for name in outputs}

    async def _spend(self, handle: Handle, run_ms: float, deadline_ns: int | None) -> None:
        left_ms = run_ms
        if self.stops_runs and deadline_ns is not None:
            left_ms = max(0.0, (deadline_ns - self._clock.now_ns()) / NS_PER_MS)
        await self._sleep(min(run_ms, left_ms))
        if left_ms < run_ms:
            raise RunStopped(variant_id=handle.build_id, reason="it took longer than it may")

    async def run_rows(
        self,
        handle: Handle,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> list[dict[str, Any]]:
        return apart(await self._run(handle, together(requests), requests, outputs, deadline_ns), counts)

    def run_inline(self, handle: Handle, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        """Time passes for everybody."""
        self._begin(handle, inputs, [inputs])
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.now_ns += int(self._cost(handle.build_id).run_ms * NS_PER_MS)
        result = self.model(inputs)
        return result if outputs is None else {name: result[name] for name in outputs}

    def _begin(self, handle: Handle, inputs: Tensors, requests: Sequence[Tensors]) -> None:
        assert handle.is_live, f"{handle.build_id} runs after its unload"
        assert not handle.is_asleep, f"{handle.build_id} runs asleep"
        self.ran.append(inputs)
        self.ran_at_ns.append(self._clock.now_ns())
        self.ran_for.append(requests)

    async def unload(self, handle: Handle) -> None:
        assert handle.is_live, f"{handle.build_id} is unloaded twice"
        assert not handle.running, f"{handle.build_id} is unloaded while it runs"
        handle.is_live = False
        self.unloads[handle.build_id] += 1
        try:
            await self._sleep(self._cost(handle.build_id).unload_ms)
        finally:
            self._drop(handle.build_id)

    def lose(self, build_id: str) -> None:
        """Its process has ended."""
        self._drop(build_id)

    def can_sleep(self, handle: Handle) -> bool:
        return self._cost(handle.build_id).asleep_bytes is not None

    async def sleep(self, handle: Handle) -> int:
        cost = self._cost(handle.build_id)
        assert handle.is_live, f"{handle.build_id} is sent to sleep after its unload"
        assert not handle.running, f"{handle.build_id} is sent to sleep while it runs"
        assert cost.asleep_bytes is not None, f"{handle.build_id} cannot sleep"
        if not handle.is_asleep:
            handle.is_asleep = True
            self.sleeps[handle.build_id] += 1
            await self._sleep(cost.sleep_ms)
            if cost.sleep_failures:
                self.end_process(handle)
                raise cost.sleep_failures.pop(0)
            self._hold(handle.build_id, cost.asleep_bytes)
        return cost.asleep_bytes

    async def wake(self, handle: Handle) -> None:
        cost = self._cost(handle.build_id)
        assert handle.is_live, f"{handle.build_id} is woken after its unload"
        if handle.is_asleep:
            self.wakes[handle.build_id] += 1
            self._hold(handle.build_id, cost.resident_bytes)
            try:
                await self._sleep(self.disk_ms.pop(handle.build_id, cost.wake_ms))
                if cost.wake_failures:
                    raise cost.wake_failures.pop(0)
            except BaseException:
                if handle.is_live:
                    self._hold(handle.build_id, cost.asleep_bytes or 0)
                raise
            handle.is_asleep = False

    async def read_ahead(self, handle: Handle) -> None:
        self.read[handle.build_id] += 1
        self.disk_ms.pop(handle.build_id, None)

    def wake_ns(self, handle: Handle) -> int:
        return int(self.disk_ms.get(handle.build_id, self._cost(handle.build_id).wake_ms) * NS_PER_MS)

    def end_process(self, handle: Handle) -> None:
        """The process of a build ends: its memory is free at once, and it is of no use any more."""
        handle.is_live = False
        self._drop(handle.build_id)

    def _check_there(self) -> None:
        if self.is_gone:
            raise ProcessorLost(processor=self.kind)

    def close(self) -> None:
        """It has no threads."""

    async def fetch(self, handle: Handle) -> None:
        """Its files are in the page cache."""

    def _cost(self, build_id: str) -> Cost:
        return self.costs.setdefault(build_id, Cost())

    async def _sleep(self, ms: float) -> None:
        self.under_way += 1
        try:
            await self._clock.sleep_until_ns(self._clock.now_ns() + int(ms * NS_PER_MS))
        finally:
            self.under_way -= 1

    def _hold(self, build_id: str, size: int) -> None:
        self.memory[build_id] = size
        self.on_memory(sum(self.memory.values()))

    def _drop(self, build_id: str) -> None:
        del self.memory[build_id]
        self.on_memory(sum(self.memory.values()))
