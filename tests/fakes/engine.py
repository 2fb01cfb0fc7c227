"""A whole engine over a fake processor: small models, virtual time, and a watch on everything that must come back to
zero.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from appliance.clock import LoopClock
from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Latency,
    Model,
    Precision,
    Profile,
    Quota,
    TaskSpec,
    Tenant,
    TensorSpec,
    Variant,
)
from appliance.domain.names import build_id, model_id, variant_id
from appliance.domain.padding import Padding
from appliance.domain.request import Request, Result, Tensors
from appliance.domain.states import VariantState
from appliance.policies.batching import BATCHING_POLICIES
from appliance.policies.batching import DEFAULT as DEFAULT_BATCHING
from appliance.policies.dispatch import DEFAULT as DEFAULT_DISPATCH
from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.forecast.memory import Trend
from appliance.policies.forecast.renewal import Renewal
from appliance.policies.residency import DEFAULT, EVICTION_POLICIES
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.assembly import Policies, RuntimeConfig, RuntimePorts, assemble
from appliance.runtime.notable import NotableRequests
from appliance.runtime.processors.cluster import Cluster
from appliance.runtime.processors.group import OnKind, OwnCores, ProcessorGroup
from appliance.runtime.processors.member import Member
from appliance.runtime.telemetry import Telemetry
from tests.fakes.clock import settle
from tests.fakes.processor import Cost, FakeProcessor, doubled
from tests.fakes.sinks import Decisions
from tests.fakes.source import FakeSource

T = TypeVar("T")
X = (TensorSpec("x", "FP32", (-1,)),)
Y = (TensorSpec("y", "FP32", (-1,)),)


def make_variant(
    model: str,
    name: str,
    cost: Cost | None = None,
    *,
    accuracy: float | None = None,
    measured: bool = True,
    state: VariantState = VariantState.READY,
    inputs: Sequence[TensorSpec] = X,
    outputs: Sequence[TensorSpec] = Y,
    content: str = "",
) -> Variant:
    """A variant whose profile says what `cost` says; `content` names the file, so equal content is one build."""
    cost = cost or Cost()
    profile = Profile(
        "fake",
        cost.resident_bytes,
        cost.peak_bytes,
        cost.load_ms,
        cost.load_ms,
        (Latency(1, cost.run_ms, cost.run_ms), *(Latency(b, ms, ms) for b, ms in cost.run_ms_by_batch.items())),
        hazards=(),
        asleep_bytes=cost.asleep_bytes,
        wake_ns=None if cost.asleep_bytes is None else int(cost.wake_ms * 1e6),
        shared_rows_max=max(cost.run_ms_by_batch, default=1),
    )
    return Variant(
        variant_id(model, name),
        model,
        name,
        Precision.FP32,
        hashlib.sha256((content or f"{model}:{name}").encode()).hexdigest(),
        4,
        tuple(inputs),
        tuple(outputs),
        state,
        accuracy=None if accuracy is None else Accuracy(accuracy, "top-1", "labels", 10),
        profile=profile if measured else None,
        is_original=name == "fp32",
    )


def build_of(variant: Variant) -> str:
    return build_id(variant.content_sha256, "cpu")


async def _at_once(compute: Callable[[], T]) -> T:
    """Forecasters are trained in no time."""
    return compute()


class EngineBench:
    """What a test of the engine holds in its hands. To be made inside a running loop."""

    def __init__(
        self,
        budget: int = 100,
        *,
        workers: int = 1,
        queue_len: int = 50,
        queue_total: int = 200,
        timeout_ms: float = 60_000,
        wait_ms_max: float = 1000,
        model: Callable[[Tensors], dict[str, Any]] = doubled,
        quick_ms_max: float = 0,
        alone_ms_max: float = 0,
        eviction: str = DEFAULT,
        delta_ms: float = 100,
        delta_share_max: float = 0.1,
        patience_ms: float | None = 0,
        other_kind: str | None = None,
        apart: bool = False,
        twins: Sequence[tuple[int, float, float]] = (),
        threads: int = 1,
        batching: str = DEFAULT_BATCHING,
        dispatch: str = DEFAULT_DISPATCH,
        fixed: Mapping[str, str] | None = None,
        stepped: Collection[str] = (),
        server_bytes: Mapping[str, int] | None = None,
    ) -> None:
        """A request that finds only expected applications in its way waits `patience_ms`; forecasts are the matter
        of few tests. `apart`: the other kind has a device of its own.
        `twins`: further processors of the first one's kind, each with its workers, how many times longer
        its runs take, and the speed that the machine says it has; with several `threads` a run each has its own copy.
        `stepped`: kinds where inputs of free size go in steps. `server_bytes`: kind → what guards are forked of takes.
        """
        self.clock = LoopClock()
        self.budget = budget
        self.others_bytes = 0
        """What other programs have taken of the machine."""
        self.telemetry = Telemetry(self.clock, notable=NotableRequests())
        self.decisions = Decisions()
        self.processor = FakeProcessor(self.clock, workers=workers, model=model, on_memory=self._watch)
        self.source = FakeSource()
        self.other = FakeProcessor(self.clock, kind=other_kind or "", workers=workers, model=model)
        self.member = Member(self.other, self.clock)
        self.twins = [
            FakeProcessor(
                self.clock, self.processor.costs, name=f"twin-{at}", workers=own, slowness=slowness, model=model
            )
            for at, (own, slowness, _speed) in enumerate(twins)
        ]
        for one in (self.processor, *self.twins):
            one.costs, one.threads = self.processor.costs, threads
        self.clusters = [Cluster(twin, self.clock) for twin in self.twins]
        cores = [OwnCores(one, speed) for one, (_, _, speed) in zip(self.clusters, twins, strict=True)]
        others = [self.member] if other_kind else []
        own = [other_kind] if other_kind and apart else []
        group = ProcessorGroup(self.processor, others, cores, clock=self.clock, apart=own)
        self.group = group
        for cluster in self.clusters:
            cluster.on_lost = partial(group.forget_copy, cluster)
            cluster.copy_again = partial(group.copy_again, cluster)
            cluster.on_change = lambda: self.engine.look_again()
            cluster.rest_s = self._rest_s
        self.throttled: set[str] = set()
        """Groups of processors, by name, that sensors say are throttled."""
        groups = [replace(one, is_throttled=partial(self._is_throttled, one.name)) for one in group.groups()]
        ports = RuntimePorts(
            clock=self.clock,
            processor=self.processor if other_kind is None and not twins else group,
            groups=groups if twins or apart else (),
            copies=group.copies,
            stepped=stepped,
            server_bytes=server_bytes or {},
            kinds=() if other_kind is None else ("cpu", other_kind),
            fingerprints={} if other_kind is None else {"cpu": "", other_kind: ""},
            builds=self.source,
            telemetry=self.telemetry,
            events=self.telemetry,
            windows=self.telemetry,
            decisions=self.decisions,
            available_bytes=lambda used: budget - used - self.others_bytes,
            forecaster_of=lambda name: Renewal(),
            memory_forecaster=Trend(),
            background=_at_once,
            save_forecasters=lambda names: None,
            save_memory_forecaster=lambda text: None,
        )
        self.policies = Policies(
            selection=MostAccurate(),
            selection_name="most-accurate",
            batching=BATCHING_POLICIES[batching](),
            eviction=EVICTION_POLICIES[eviction](),
            eviction_name=eviction,
            dispatch=DISPATCH_POLICIES[dispatch](),
            dispatch_name=dispatch,
            fixed=fixed or {},
        )
        figures = RuntimeConfig(
            budget_bytes=budget,
            wait_ms_max=wait_ms_max,
            timeout_ms=timeout_ms,
            queue_len_max=queue_len,
            queue_total_max=queue_total,
            sequences_max=8,
            quick_us_max=1000 * quick_ms_max,
            inline_ms_max=alone_ms_max,
            alpha=1.02,
            delta_ms=delta_ms,
            delta_share_max=delta_share_max,
            history_window_s=10,
            tick_ms=1,
            reloads_per_min_max=30,
            patience_ms=patience_ms,
        )
        self.core = assemble(ports, self.policies, figures)
        self.catalogue = self.core.catalogue
        self.memory = self.core.memory
        self.queue = self.core.queue
        self.sequences = self.core.sequences
        self.availability = self.core.availability
        self.engine = self.core.engine

    @asynccontextmanager
    async def working(self, *, residency: bool = False) -> AsyncIterator[None]:
        """Run workers, and the residency loop where that is asked for. Ends when processors are at rest."""
        tasks = [asyncio.create_task(worker.work()) for worker in self.engine.workers]
        if residency:
            tasks.append(asyncio.create_task(self.core.residency.run()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends), f"a worker died: {ends}"
            await self.at_rest()

    async def at_rest(self) -> None:
        """Let time pass until no load, run or unload is under way."""
        processors = (self.processor, self.other, *self.twins)
        milliseconds = 1.0
        await settle()
        while self.memory.is_busy or any(one.under_way for one in processors):
            assert milliseconds < 1e12, "something has been under way for thirty years"
            await self.pause(milliseconds)
            await settle()
            milliseconds *= 2

    def add(
        self,
        variants: Mapping[str, Cost],
        *,
        name: str = "app",
        tenant: str = "t",
        slo_ms: float | None = None,
        quota: Quota | None = None,
        task: TaskSpec | None = None,
        shared: bool = False,
        inputs: Sequence[TensorSpec] = X,
        outputs: Sequence[TensorSpec] = Y,
        measured: bool = True,
        padding: Padding | None = None,
    ) -> Application:
        """A tenant with a model of these variants, the first the most accurate, and an application of the same name."""
        model = model_id(tenant, name)
        made = tuple(
            replace(
                make_variant(
                    model,
                    variant,
                    cost,
                    accuracy=90.0 - 10.0 * i,
                    measured=measured,
                    inputs=inputs,
                    outputs=outputs,
                ),
                padding=padding,
            )
            for i, (variant, cost) in enumerate(variants.items())
        )
        self.processor.costs.update({build_of(v): c for v, c in zip(made, variants.values(), strict=True)})
        self.catalogue.put_tenant(Tenant(tenant, quota or Quota()))
        self.catalogue.put_model(Model(model, tenant, name, task or TaskSpec(), made, shared=shared))
        application = Application(model, tenant, name, model, latency_slo_ms=slo_ms, shared=shared)
        self.catalogue.put_application(application)
        return application

    def build(self, variant: str, application: str = "t/app") -> str:
        """The build id of an application's variant."""
        return self.catalogue.entry(application).servables[variant].build_id

    def wishes(self, application: str = "t/app") -> set[tuple[str, int]]:
        """The variants of an application that planners wish for, with priorities."""
        group = self.core.groups.of_application(application)
        assert group is not None
        return {(wish.variant, wish.priority) for wish in self.core.arbiter.beside.wishes(group.name)}

    def request(
        self,
        x: float = 1.0,
        application: str = "t/app",
        *,
        tenant: str = "t",
        within_ms: float | None = None,
        inputs: Tensors | None = None,
        **facts: Any,
    ) -> Request:
        """A request of one number that arrives now."""
        now_ns = self.clock.now_ns()
        deadline_ns = None if within_ms is None else now_ns + int(within_ms * 1e6)
        given = {"x": np.array([x], np.float32)} if inputs is None else inputs
        return Request(application, tenant, given, now_ns, deadline_ns=deadline_ns, **facts)

    async def infer(self, x: float = 1.0, application: str = "t/app", **facts: Any) -> Result:
        return await self.engine.infer(self.request(x, application, **facts))

    async def pause(self, milliseconds: float) -> None:
        """Let time pass."""
        await self.clock.sleep_until_ns(self.clock.now_ns() + int(milliseconds * 1e6))

    def assert_quiet(self) -> None:
        """Nothing under way anywhere: no request, no job, no pin, no run."""
        status = self.engine.status()
        assert (status["queued"], status["queues"], status["running"]) == (0, {}, 0)
        assert [b["pins"] for b in self.memory.snapshot()["builds"] if b["pins"]] == []
        assert [one.running for one in (self.processor, *self.twins)] == [0] * (1 + len(self.twins))

    def follow_kinds(self) -> None:
        """What serves where goes by whether the other kind takes runs, and what is lost with it leaves memory."""
        self.member.on_lost = self.memory.lost
        self.member.rest_s = self._rest_s
        self.member.on_change = self._kinds_changed
        self._kinds_changed()

    def _rest_s(self, handle: Any, begun_ns: int) -> float:
        def is_of(held: Any) -> bool:
            return isinstance(held, OnKind) and held.has(handle)

        return self.queue.rest_ns(is_of, begun_ns, self.clock.now_ns()) / 1e9

    def _is_throttled(self, group: str) -> bool:
        return group in self.throttled

    def _kinds_changed(self) -> None:
        self.catalogue.leave_out(frozenset() if self.member.is_serving else frozenset({self.member.described.kind}))

    def _watch(self, used: int) -> None:
        assert used <= self.budget, "the device is over the budget"
