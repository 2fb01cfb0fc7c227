"""A bench with two kinds of processors."""

from dataclasses import replace
from typing import Any

from appliance.domain.catalogue import Latency, Quota
from appliance.domain.states import ProcessorState
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import also_on, change

CPU_MS, NPU_MS, LOAD_MS = 12, 5, 4


def bench_of(quota: Quota | None = None, **facts: float) -> EngineBench:
    """One network that serves on an NPU with a device of its own; the CPU takes more than twice as long."""
    bench = EngineBench(other_kind="npu", apart=True, **facts)  # type: ignore[arg-type]
    add(bench, quota=quota)
    return bench


def add(bench: EngineBench, name: str = "app", tenant: str = "t", cpu_ms: float = CPU_MS, **facts: Any) -> None:
    """A network that serves on the NPU."""
    sizes: dict[str, Any] = {"load_ms": LOAD_MS, "resident_bytes": 10, "peak_bytes": 12}
    bench.add({"v": Cost(run_ms=cpu_ms, **sizes)}, name=name, tenant=tenant, **facts)
    also_on(bench, "npu", NPU_MS, f"{tenant}/{name}", **sizes)
    bench.follow_kinds()
    if bench.member.state is not ProcessorState.SERVING:
        bench.member.serve()
    assert bench.build("v", f"{tenant}/{name}").endswith("@npu")


def cpu_build(bench: EngineBench) -> str:
    return bench.build("v").replace("@npu", "@cpu")


def measured(bench: EngineBench, several_ms: float, name: str = "app") -> None:
    """With two runs under way each takes so long, on the kind that it serves on."""
    (variant,) = bench.catalogue.entry(f"t/{name}").model.variants
    assert variant.profile is not None
    *others, last = variant.profile, *variant.other_profiles
    last = replace(last, latencies=(*last.latencies, Latency(1, several_ms, several_ms, 2)))
    if others:
        change(bench, f"t/{name}", other_profiles=(last,))
    else:
        change(bench, f"t/{name}", latencies=last.latencies)
