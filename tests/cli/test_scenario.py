"""A scenario document as TOML: what a reader of TOML gets back is the document."""

import tomllib

from appliance.cli.scenario import toml_of
from appliance.runtime.telemetry import RECENT_RUNS
from appliance.wire.box import ProcessorShape
from appliance.wire.catalogue import LatencyShape, SeenShape
from appliance.wire.scenario import RUNS_KEPT, RUNS_MIN, evenly, latency_ms, processors_of, served_ms
from tests.lab.scenarios import document


def test_scenario_processors_have_power_and_price() -> None:
    """By which the box plans its pipelines; an operator sees them."""
    one = ProcessorShape(name="cpu", kind="cpu", workers=2, watts=7.5, price_per_hour=0.0)
    assert processors_of([one], 2) == [
        {"name": "cpu", "kind": "cpu", "concurrency": 2, "power_w": 7.5, "price_per_hour": 0.0}
    ]


def test_scenario_toml_reads_back_as_the_document() -> None:
    """Nested lists of tables, inline tables with numbers as keys, empty lists, names that need quotes and escapes."""
    written = document(tenants=[], policies={"eviction": "lru"})
    written["applications"][0] |= {"name": 'a "door"\n\\ é', "weight": 1.0, "shared": True, "tags": ["x", 2]}
    assert tomllib.loads(toml_of(written)) == written


def test_run_times_are_thinned_to_a_thousand_of_the_same_distribution() -> None:
    """The run times that an application keeps stay as they are, so that the slowest hundredth is not cut; of many the
    middle, the ends and the mean stay.
    """
    assert evenly([1.0, 2.0, 9.0]) == [1.0, 2.0, 9.0]
    recent = [float(i) for i in range(RECENT_RUNS)]
    assert evenly(recent) == recent
    kept = evenly([float(i) for i in range(10 * RUNS_KEPT)])
    assert len(kept) == RUNS_KEPT
    assert kept == sorted(kept)
    assert (kept[0], kept[500], kept[-1]) == (5, 5005, 9995)


def test_run_times_replace_the_profile_only_when_enough() -> None:
    assert served_ms("cpu", [1.0] * (RUNS_MIN - 1)) == {}
    assert served_ms("cpu", [2.0, 1.0] * RUNS_MIN) == {"cpu": [1.0] * RUNS_MIN + [2.0] * RUNS_MIN}


def test_scenario_latencies_are_those_seen_at_measured_run_shapes() -> None:
    """Where the import measured such runs; not those on the event loop, nor of inputs of another size."""
    rows = [
        LatencyShape(batch=batch, concurrency=concurrency, p50_ms=ms, p99_ms=ms)
        for batch, concurrency, ms in ((1, 1, 10), (4, 1, 30), (1, 2, 14), (4, 2, 44))
    ]
    seen = [
        SeenShape(batch=batch, concurrency=concurrency, elements_max=elements, p50_ms=ms, p99_ms=ms)
        for batch, concurrency, elements, ms in (
            (1, 0, None, 9),
            (1, 1, None, 11),
            (1, 2, None, 17),
            (3, 2, None, 40),
            (4, 2, 47, 90),
        )
    ]
    assert latency_ms(rows, []) == {"1": 10, "4": 30, "1x2": 14, "4x2": 44}
    assert latency_ms(rows, seen) == {"1": 10, "4": 30, "1x2": 17, "4x2": 44}
    assert latency_ms(rows, seen, is_measured=False) == {"1": 11, "4": 30, "1x2": 17, "4x2": 44}


def test_processors_on_the_same_cores_form_a_scenario_group() -> None:
    """For each set of cores; a processor with a device of its own stands alone, with its memory."""
    big, little = (ProcessorShape(name=name, kind="cpu", workers=2) for name in ("big", "little"))
    guest = ProcessorShape(name="openvino", kind="openvino", workers=4)
    device = ProcessorShape(name="gpu", kind="tensorrt", workers=1, memory_budget_bytes=2 * 10**9)
    assert processors_of([big, little, guest, device], 4) == [
        {"name": "big", "kind": "cpu", "concurrency": 2, "group": "big"},
        {"name": "openvino", "kind": "openvino", "concurrency": 2, "group": "big"},
        {"name": "little", "kind": "cpu", "concurrency": 2, "group": "little"},
        {"name": "openvino/little", "kind": "openvino", "concurrency": 2, "group": "little"},
        {"name": "gpu", "kind": "tensorrt", "concurrency": 1, "memory_mb": 2000.0},
    ]
    assert processors_of([big, little], 4) == [
        {"name": "big", "kind": "cpu", "concurrency": 2},
        {"name": "little", "kind": "cpu", "concurrency": 2},
    ]
    assert processors_of([ProcessorShape(name="cpu", kind="cpu")], 3) == [
        {"name": "cpu", "kind": "cpu", "concurrency": 3}
    ]
