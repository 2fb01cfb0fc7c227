"""What a person reads of a pipeline."""

from typing import Any

import pytest

from appliance.cli.pipelines import list_row, status_lines
from appliance.wire.pipelines import PipelinePlanShape, PipelineRowShape, PipelineStatusShape, StagePlanShape
from tests.cli.blank import blank

STATUS = {
    "name": "one",
    "tenant": "t",
    "latency_slo_ms": 500,
    "fastest_ms": None,
    "takes": "picture",
    "cost_by": "seconds",
    "weight": 1.0,
    "stages": [{"name": "what", "application": "digits"}],
    "frames": {"answered": 9, "in_time": 5, "late": 1, "dropped": 3},
    "finish_rate": [{"second": 0, "sent": 4, "in_time": 3}, {"second": 1, "sent": 5, "in_time": 2}],
    "figures": {"what": {"items": 9, "ballooning": 1.25, "no_condition": 2}},
    "cost": {
        "per_frame": {"seconds": 0.02, "joules": 0.3, "price": 0.004},
        "per_second": {"seconds": 0.1, "joules": 1.5, "price": 0.02},
        "energy_by": "declared",
    },
}


def told_of(**changed: Any) -> str:
    return "\n".join(status_lines(PipelineStatusShape.model_validate({**STATUS, **changed})))


def test_pipeline_status_shows_costs_and_frame_ends() -> None:
    text = told_of()
    for told in (
        "20 ms of processors and 0.3 J and price 0.004 a frame",
        "100 ms of processors and 1.5 J and price 0.02 a second",
        "joules by watts that are declared",
        "3/4 2/5 of those sent, by second",
        "3 incomplete",
        "runs take 1.25 times what was measured",
        "2 not asked",
    ):
        assert told in text, told


@pytest.mark.parametrize(
    ("ballooning", "workers", "told"),
    [
        (1.0001, 1.0, ("1 item, ", "runs take as long as was measured", "2/s, 1 worker, 4 ms")),
        (2.5, 0.000023, ("runs take 2.5 times what was measured", "2/s, < 0.01 workers, 4 ms")),
        (0.5, 0.346, ("runs take 0.5 times", "2/s, 0.35 workers, 4 ms")),
    ],
)
def test_pipeline_status_has_singular_forms_and_rounded_workers(
    ballooning: float, workers: float, told: tuple[str, ...]
) -> None:
    """One item is no plural, and no digits are shown that say nothing."""
    row = blank(StagePlanShape, stage="what", rate_rps=2.0, instances=workers, latency_ms=4.0)
    plan = blank(PipelinePlanShape, number=1, fps=2.0, feasible=True, stages=[row])
    figures = {"what": {"items": 1, "ballooning": ballooning}}
    text = told_of(plan=plan, figures=figures)
    for one in told:
        assert one in text, one


def test_pipeline_status_without_clients_has_no_rates_or_costs() -> None:
    plan = blank(PipelinePlanShape, number=3, feasible=True, reason="nobody has joined")
    nothing = {"seconds": 0.0, "joules": 0.0, "price": 0.0}
    cost = {"per_frame": nothing, "per_second": nothing, "energy_by": None}
    text = told_of(plan=plan, cost=cost)
    assert "plan 3        nobody has joined" in text
    assert "0 frames" not in text
    assert "cost          nothing a frame, nothing a second" in text


def test_pipelines_list_row_shows_rate_share_in_time_and_frame_cost() -> None:
    """Of the last seconds; an unused pipeline has neither a share nor a cost."""
    figures = {"rate_fps": 4.5, "in_time": 0.9875, "cost_per_frame": {"seconds": 0.0312}}
    used = PipelineRowShape.model_validate({**STATUS, **figures})
    assert list_row(used)[4:7] == ("4.5", "98.8%", "31.2 ms")
    assert list_row(PipelineRowShape.model_validate(STATUS))[4:7] == ("0", "–", "–")
