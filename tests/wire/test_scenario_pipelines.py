"""A box's pipelines as a scenario: what was seen of their frames is what the lab's networks see, and what runs there is
what ran in the box.
"""

from typing import Any

import pytest

from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.wire.pipelines import PipelineStatusShape
from appliance.wire.scenario_pipelines import Applications, items_asked, left_out, pipelines_of
from tests.lab.scenarios import document

pytestmark = pytest.mark.gate("whole simulations")

CAPTIONS = ("harbour", "captions")
KNOWN = Applications({("default", "door"): "door", CAPTIONS: "harbour/captions"}, {CAPTIONS})
IN_LAB = Applications({**KNOWN.names, CAPTIONS: "captions"}, {CAPTIONS})
STAGES: list[dict[str, Any]] = [
    {"name": "find", "application": "door"},
    {"name": "lines", "do": "crop", "after": ["find"], "of": "regions", "where": {"score_min": 0.6, "label": "x"}},
    {"name": "side", "application": "door", "after": ["lines"]},
    {
        "name": "read",
        "application": "harbour/captions",
        "after": ["lines"],
        "when": {"stage": "side", "label_not": "180"},
        "accuracy_min": 0.5,
    },
]
FIGURES = {
    "find": {"items": 100, "items_per_frame": 1.0},
    "lines": {"items": 100, "items_per_frame": 1.0, "p50_ms": 0.8},
    "side": {"items": 400, "items_per_frame": 4.0, "dropped": 10},
    "read": {"items": 300, "items_per_frame": 3.0, "no_condition": 100},
}


def status(**changes: Any) -> PipelineStatusShape:
    facts = {
        "name": "signs",
        "tenant": "default",
        "latency_slo_ms": 900.0,
        "stages": STAGES,
        "cost_by": "seconds",
        "weight": 2.0,
        "frames": {"answered": 98, "failed": 2},
        "figures": FIGURES,
    }
    return PipelineStatusShape.model_validate({**facts, **changes})


def test_scenario_pipeline_has_the_figures_seen_on_the_box() -> None:
    (found,) = pipelines_of([status()], KNOWN, 50.0)
    assert (found["name"], found["rate_rps"], found["clients"], found["weight"]) == ("default/signs", 2.0, [], 2.0)
    find, lines, side, read = found["stages"]
    assert find == {"name": "find", "application": "door"}
    assert (lines["fan_out"], lines["takes_ms"]) == (4.0, 0.2)
    assert "where" not in lines
    assert side["seen"] == pytest.approx({"other": 0.75, "180": 0.25})
    assert (read["application"], read["accuracy_min"]) == ("harbour/captions", 50.0)


def test_scenario_pipeline_rate_excludes_frames_of_listed_clients() -> None:
    (found,) = pipelines_of([status(clients=[{"id": "c", "fps": 5.0}], rate_fps=6.5)], KNOWN, 50.0)
    assert (found["clients"], found["rate_rps"]) == ([{"fps": 5.0}], 1.5)


def test_pipeline_items_are_counted_per_application() -> None:
    assert items_asked([status()], KNOWN) == {"door": 490, "harbour/captions": 300}


def test_pipeline_with_application_outside_the_scenario_is_left_out() -> None:
    alone = Applications({("default", "door"): "door"})
    assert pipelines_of([status()], alone, 50.0) == []
    assert left_out([status()], alone) == ["default/signs"]
    assert left_out([status()], KNOWN) == []


def test_pipeline_does_not_use_private_application_of_other_tenant() -> None:
    """`read` is private at `attic` and shared at `zoo`: harbour's pipeline takes that of zoo, not the first."""
    names = {("attic", "read"): "attic/read", ("zoo", "read"): "zoo/read"}
    one = status(tenant="harbour", stages=[{"name": "read", "application": "read"}], figures={"read": {"items": 7}})
    known = Applications(names, {("zoo", "read")})
    assert pipelines_of([one], known, 50.0)[0]["stages"][0]["application"] == "zoo/read"
    assert items_asked([one], known) == {"zoo/read": 7}
    assert left_out([one], Applications(names)) == ["harbour/signs"]
    assert items_asked([one], Applications(names)) == {}
    by_owner = status(tenant="harbour", stages=[{"name": "read", "application": "attic/read"}])
    assert left_out([by_owner], known) == ["harbour/signs"]


def test_scenario_pipeline_counts_items_behind_a_pick_once() -> None:
    """Ten lines of a frame, three of which the pick takes; a condition before that holds of eight."""
    stages: list[dict[str, Any]] = [
        {"name": "find", "application": "door"},
        {"name": "lines", "do": "crop", "after": ["find"], "of": "regions"},
        {"name": "best", "do": "pick", "after": ["lines"], "best": 3, "when": {"stage": "find", "label": "x"}},
        {"name": "all", "do": "join", "after": ["lines"]},
    ]
    figures = {
        "find": {"items": 100, "items_per_frame": 1.0},
        "lines": {"items": 100, "items_per_frame": 1.0},
        "best": {"items": 800, "items_per_frame": 8.0, "no_condition": 700, "outdone": 500, "p50_ms": 0.4},
        "all": {"items": 100, "items_per_frame": 1.0},
    }
    (found,) = pipelines_of([status(stages=stages, figures=figures)], KNOWN, 50.0)
    find, lines, best, _ = found["stages"]
    assert lines["fan_out"] == 10.0
    assert find["seen"] == pytest.approx({"x": 0.8, "other": 0.2})
    assert best["takes_ms"] == 0.4


def test_scenario_condition_share_excludes_outdone_items() -> None:
    """`at_most` of 4 lines: 3 are asked, and of 300 that the stage had none of, 100 were beyond that."""
    figures = {**FIGURES, "read": {"items": 300, "items_per_frame": 3.0, "no_condition": 200, "outdone": 100}}
    (found,) = pipelines_of([status(figures=figures)], KNOWN, 50.0)
    assert found["stages"][2]["seen"] == pytest.approx({"other": 0.8, "180": 0.2})


@pytest.mark.nightly("a long simulation")
def test_lab_simulates_pipeline_with_the_items_seen_on_the_box() -> None:
    written = pipelines_of([status(latency_slo_ms=5000.0)], IN_LAB, 50.0)
    found: Any = simulate(parse_scenario(document(pipelines=written, arrivals=[]))).outcome.document()
    figures = found["pipelines"]["default/signs"]
    assert figures["frames"] == pytest.approx(240, rel=0.2)
    assert figures["finish_rate"] > 0.9
    assert figures["items_per_frame"]["read"] == pytest.approx(3.0, rel=0.15)
