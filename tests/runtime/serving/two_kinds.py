"""A bench with two kinds of processors."""

from dataclasses import replace
from typing import Any

from appliance.domain.catalogue import Latency, Quota
from appliance.domain.states import ProcessorState
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost

CPU_MS, NPU_MS, LOAD_MS = 12, 5, 4


def bench_of(quota: Quota | None = None, **facts: float) -> EngineBench:
    """One network that serves on an NPU with a device of its own; the CPU takes more than twice as long."""
    bench = EngineBench(other_kind="npu", apart=True, **facts)  # type: ignore[arg-type]
    add(bench, quota=quota)
    return bench


def add(bench: EngineBench, name: str = "app", tenant: str = "t", cpu_ms: float = CPU_MS, **facts: Any) -> None:
    """A network that serves on the NPU."""
    cost = Cost(run_ms=cpu_ms, load_ms=LOAD_MS, resident_bytes=10, peak_bytes=12)
    bench.add({"v": cost}, name=name, tenant=tenant, **facts)
    model = bench.catalogue.entry(f"{tenant}/{name}").model
    (variant,) = model.variants
    assert variant.profile is not None
    rows = (Latency(1, NPU_MS, NPU_MS),)
    there = replace(variant.profile, processor="npu", kind="npu", latencies=rows)
    bench.catalogue.put_model(replace(model, variants=(replace(variant, other_profiles=(there,)),)))
    bench.follow_kinds()
    if bench.member.state is not ProcessorState.SERVING:
        bench.member.serve()
    own = bench.catalogue.entry(f"{tenant}/{name}").servables["v"].build_id
    assert own.endswith("@npu")
    bench.other.costs[own] = Cost(run_ms=NPU_MS, load_ms=LOAD_MS, resident_bytes=10, peak_bytes=12)


def cpu_build(bench: EngineBench) -> str:
    return bench.build("v").replace("@npu", "@cpu")


def measured(bench: EngineBench, several_ms: float, name: str = "app", **batches: float) -> None:
    """With two runs under way each takes so long."""
    model = bench.catalogue.entry(f"t/{name}").model
    (variant,) = model.variants
    assert variant.profile is not None
    of = [variant.profile, *variant.other_profiles]
    one = of[-1].latencies[0]
    of[-1] = replace(of[-1], latencies=(*of[-1].latencies, Latency(one.batch, several_ms, several_ms, 2)))
    bench.catalogue.put_model(replace(model, variants=(replace(variant, profile=of[0], other_profiles=tuple(of[1:])),)))
