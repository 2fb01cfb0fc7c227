"""What `/v1` says of a box as a whole scenario: what the lab reads of it, and that it can be simulated."""

from typing import Any

import pytest

from appliance.domain.catalogue import Evidence, Precision, TaskKind
from appliance.domain.states import VariantState
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.wire.access import QuotaShape, TenantShape
from appliance.wire.box import MemoryShape, ProcessorShape, SystemShape
from appliance.wire.catalogue import (
    ApplicationShape,
    LatencyShape,
    ModelShape,
    ProfileShape,
    RunBoundShape,
    SeenShape,
    TensorShape,
    VariantShape,
)
from appliance.wire.pipelines import PipelineStatusShape
from appliance.wire.scenario import Snapshot, Use, scenario_of

SETTINGS: dict[str, dict[str, Any]] = {
    "queues": {"len_max": 64, "total_max": 256, "wait_ms_max": 9e3, "timeout_ms": 2e4, "media_threads": 3},
    "memory": {"wait_ms_max": 2e4, "loads_parallel_max": 1, "asleep_share": 0.1},
    "selection": {"loss_max": 0.01},
    "pipelines": {"turn_off_s": 7.0, "window_ms": 300.0},
    "residency": {},
}


def _some(shape: Any, **facts: Any) -> Any:
    """A shape with what a scenario is made of, and its defaults."""
    return shape.model_construct(**facts)


def box(**changes: Any) -> Snapshot:
    """Of two clusters of cores, with one application that one pipeline asks."""
    profile = ProfileShape(
        processor="big",
        resident_bytes=10**7,
        peak_bytes=10**7,
        load_ms=50,
        load_cold_ms=60,
        latencies=[
            LatencyShape(batch=1, concurrency=1, p50_ms=10, p99_ms=11),
            LatencyShape(batch=1, concurrency=2, p50_ms=14, p99_ms=21),
        ],
    )
    variant = _some(
        VariantShape,
        name="one",
        precision=Precision.FP32,
        state=VariantState.READY,
        accuracy=None,
        evidence=Evidence.ORIGINAL,
        profile=profile,
        serves_on="cpu",
    )
    application = ApplicationShape(
        name="read",
        tenant="harbour",
        model="read",
        task=TaskKind.TENSOR,
        latency_slo_ms=None,
        accuracy_min=0,
        weight=1,
        shared=False,
        available=True,
        variants=["one"],
    )
    pipeline = PipelineStatusShape.model_validate(
        {
            "name": "signs",
            "tenant": "harbour",
            "latency_slo_ms": 3_600_000.0,
            "stages": [{"name": "read", "application": "read"}],
            "cost_by": "price",
            "weight": 1.0,
            "frames": {"answered": 100},
            "figures": {"read": {"items": 100, "items_per_frame": 1.0}},
        }
    )
    model = _some(ModelShape, name="read", tenant="harbour", variants=[variant])
    facts: dict[str, Any] = {
        "system": _some(SystemShape, uptime_s=50.0, policies={}, settings=SETTINGS, engine={"workers": [1, 2, 3, 4]}),
        "memory": _some(MemoryShape, budget_bytes=10**8, tenants=[]),
        "processors": [
            ProcessorShape(name="big", kind="cpu", workers=2, watts=8.0, price_per_hour=3.6),
            ProcessorShape(name="little", kind="cpu", workers=2, watts=2.0, price_per_hour=3.6),
        ],
        "tenants": [_some(TenantShape, name="harbour", quota=_some(QuotaShape))],
        "uses": [Use(application, model, 100, {})],
        "pipelines": [pipeline],
    }
    return Snapshot(**{**facts, **changes})


def test_scenario_of_box_with_core_clusters_simulates_pipelines() -> None:
    found = scenario_of(box(), rate_rps=0.0, duration_s=20.0)
    figures: Any = simulate(parse_scenario(found)).outcome.document()
    assert figures["pipelines"]["harbour/signs"]["finished_in_time"] > 20
    without = scenario_of(box(pipelines=[]), rate_rps=0.0, duration_s=20.0)
    assert "pipelines" not in without


def test_scenario_has_the_planning_figures_of_the_box() -> None:
    found = parse_scenario(scenario_of(box(), rate_rps=0.0, duration_s=20.0)).box
    assert [(one.power_w, one.price_per_hour) for one in found.processors] == [(8.0, 3.6), (2.0, 3.6)]
    assert (found.media_threads, found.turn_off_s, found.window_ms) == (3, 7.0, 300.0)


def test_scenario_counts_processes_and_activations_of_the_box() -> None:
    """100 MB, of which guards and their server take 30; planners, which end where models need memory, take 20."""
    beside = [
        {"of": "guards", "bytes": 24e6},
        {"of": "planner processes", "bytes": 20e6},
        {"of": "fork servers", "bytes": 6e6},
    ]
    memory = MemoryShape.model_validate(
        {
            **{
                name: 0
                for name in ("used_bytes", "loads", "load_failures", "loads_skipped", "evictions", "replacements")
            },
            "budget_bytes": 10**8,
            "overhead_bytes": 50_000_000,
            "beside": beside,
            "spare_bytes": 7_000_000,
            "builds": [],
            "tenants": [],
            "residency": {"delta_ms": 0, "history_window_ms": 0, "transitions": 0, "applications": []},
        }
    )
    snapshot = box(memory=memory, pipelines=[])
    (use,) = snapshot.uses
    (variant,) = use.model.variants
    assert variant.profile is not None
    runs = [
        RunBoundShape(shapes={"image": [1, 3, 32, 32]}, peak_bytes=5_000_000),
        RunBoundShape(shapes={"image": [1, 3, 64, 64]}, peak_bytes=9_000_000),
        RunBoundShape(shapes={"image": [4, 3, 64, 64]}, peak_bytes=20_000_000),
    ]
    profile = variant.profile.model_copy(update={"runs": runs})
    image = TensorShape(name="image", datatype="FP32", shape=[-1, 3, -1, -1])
    variants = [_some(VariantShape, **{**variant.model_dump(), "profile": profile, "inputs": [image]})]
    model = _some(ModelShape, name="read", tenant="harbour", variants=variants)
    uses = [Use(use.application, model, 100, {})]
    found = scenario_of(box(memory=memory, uses=uses, pipelines=[]), rate_rps=0.0, duration_s=20.0)
    account = {key: value for key, value in found["box"].items() if key.endswith("_mb")}
    assert account == {"memory_mb": 70, "overhead_mb": 30, "planners_mb": 20, "spare_mb": 7}
    assert found["models"][0]["variants"][0]["run_mb"] == {"1": 5, "4": 20}
    fullest: Any = simulate(parse_scenario(found)).outcome.document()["memory_fullest_mb"]
    assert sum(fullest.values()) == 100
    assert (fullest["processes"], fullest["runs"]) == (50, 10)


@pytest.mark.parametrize("settings", [{**SETTINGS, "queues": {**SETTINGS["queues"], "media_threads": None}}])
def test_scenario_leaves_out_settings_that_are_not_set(settings: dict[str, Any]) -> None:
    """TOML has no null; boxes of earlier versions do not tell of pipelines."""
    del settings["pipelines"]
    system = _some(SystemShape, uptime_s=50.0, policies={}, settings=settings, engine={"workers": [1]})
    found = scenario_of(box(system=system), rate_rps=0.0, duration_s=20.0)["box"]
    assert "media_threads" not in found
    assert "turn_off_s" not in found


def test_scenario_p99_has_the_spread_measured_at_the_same_concurrency() -> None:
    """P99 to P50 of the runs seen since is the ratio that was measured at import."""
    snapshot = box()
    (use,) = snapshot.uses
    (variant,) = use.model.variants
    seen = SeenShape(batch=1, concurrency=2, elements_max=None, p50_ms=20.0, p99_ms=99.0)
    variants = [_some(VariantShape, **{**variant.model_dump(), "profile": variant.profile, "seen": [seen]})]
    model = _some(ModelShape, name="read", tenant="harbour", variants=variants)
    found = scenario_of(box(uses=[Use(use.application, model, 100, {})]), rate_rps=0.0, duration_s=20.0)
    (written,) = found["models"][0]["variants"]
    assert written["latency_ms"]["big"] == {"1": 10, "1x2": 20}
    assert written["p99_ms"]["big"] == pytest.approx({"1": 11, "1x2": 30})


@pytest.mark.parametrize(("serves_on", "quicker"), [("openvino", 4), ("cpu", 40)])
def test_scenario_variant_runs_on_the_processor_kind_the_box_chose(serves_on: str, quicker: float) -> None:
    """Both kinds are in the scenario with the figures of the import; seen runs are those of the kind that serves."""
    snapshot = box(pipelines=[])
    (use,) = snapshot.uses
    (variant,) = use.model.variants
    assert variant.profile is not None
    guest = variant.profile.model_copy(
        update={
            "processor": "openvino",
            "kind": "openvino",
            "latencies": [LatencyShape(batch=1, concurrency=1, p50_ms=quicker, p99_ms=quicker)],
        }
    )
    kinds = {"profiles": [variant.profile, guest], "serves_on": serves_on}
    variants = [_some(VariantShape, **{**variant.model_dump(), "profile": variant.profile, **kinds})]
    model = _some(ModelShape, name="read", tenant="harbour", variants=variants)
    processors = [ProcessorShape(name=name, kind=name, workers=2) for name in ("cpu", "openvino")]
    uses = [Use(use.application, model, 100, {"one": [7.0] * 10})]
    found = scenario_of(box(processors=processors, uses=uses, pipelines=[]), rate_rps=0.0, duration_s=50.0)
    (written,) = found["models"][0]["variants"]
    assert written["latency_ms"] == {"cpu": {"1": 10, "1x2": 14}, "openvino": {"1": quicker}}
    assert written["served_ms"] == {serves_on: [7.0] * 10}
    figures: Any = simulate(parse_scenario(found)).outcome.document()
    assert figures["latency_ms"]["p50"] == pytest.approx(7.0, abs=0.5)
