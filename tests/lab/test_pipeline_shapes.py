"""What is wrong with a scenario's pipelines is told by its key."""

from pathlib import Path
from typing import Any

import pytest

from appliance.domain.pipeline import PIPELINES_MAX, Ask, Crop
from appliance.lab.left_out import with_as_many, without_malformed
from appliance.lab.pipeline_shapes import PipelineShape, pipeline_of, read_items
from appliance.lab.problems.base import Malformed, shaped
from appliance.lab.scenario import parse_scenario
from appliance.modelstore.store.pipelines import PER_TENANT_MAX
from appliance.modelstore.store.records import ALL_TENANTS
from tests.lab.refusals import refusal
from tests.lab.scenarios import document

STAGES: list[dict[str, Any]] = [{"application": "door"}, {"application": "captions", "after": "door", "fan_out": 2.0}]


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "p", "latency_slo_ms": 400, "stages": STAGES, "rate_rps": 1.0, **changes}


def test_pipeline_in_short_form_has_a_crop_before_a_stage_with_fan_out() -> None:
    shape = shaped(PipelineShape, entry(weight=2.0))
    made = pipeline_of(shape, {"door": "a", "captions": "b"})
    assert (made.id, made.weight) == ("a/p", 2.0)
    first, crop, last = made.stages
    assert isinstance(first, Ask)
    assert first.application_id == "a/door"
    assert isinstance(crop, Crop)
    assert (crop.name, crop.after) == ("captions-items", ("door",))
    assert isinstance(last, Ask)
    assert (last.application_id, last.after) == ("b/captions", ("captions-items",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": []}, "pipelines[0].stages: must have at least 1"),
        ({"stages": [{"name": "x"}]}, "pipelines[0].stages[0]: needs exactly one of application, do"),
        ({"stages": [{"application": "nobody"}]}, "pipelines[0].stages[0].application: 'nobody' is not one of"),
        ({"stages": [{"do": "crop", "after": "x"}]}, "pipelines[0].stages[0].name: is missing"),
        ({"stages": [{"application": "door", "fan_out": 2.0}]}, "pipelines[0].stages[0].fan_out: needs a stage"),
        (
            {"stages": [STAGES[0], {**STAGES[1], "items": [1]}]},
            "pipelines[0].stages[1].items: goes with no fan_out",
        ),
        (
            {"stages": [STAGES[0], {**STAGES[1], "fan_out": None, "items_csv": "none.csv"}]},
            "pipelines[0].stages[1].items_csv: none.csv cannot be read",
        ),
        (
            {"stages": [*STAGES, {"application": "door", "name": "again", "after": "nobody"}]},
            "pipelines[0].stages[2].after: ",
        ),
        ({"rate_rps": None}, "pipelines[0]: needs one of rate_rps, times_s, csv, clients, or sessions"),
        ({"times_s": [1.0]}, "pipelines[0].times_s: goes with no rate_rps"),
        ({"rate_rps": 1e5}, "duration_s: about 12000000 frames are more than 10000000"),
        (
            {"stages": [STAGES[0], {**STAGES[1], "where": {"size_min": 0.1}}]},
            "pipelines[0].stages[1].where.size_min: is of no use",
        ),
        ({"cost_by": "gold"}, "pipelines[0].cost_by: "),
    ],
)
def test_malformed_pipeline_shape_names_its_key(changes: dict[str, Any], message: str) -> None:
    assert refusal(document(pipelines=[entry(**changes)]), parse_scenario).startswith(message)


def test_pipeline_name_twice_or_without_duration_is_refused() -> None:
    with pytest.raises(Malformed, match=r"pipelines\[1\]\.name"):
        parse_scenario(document(pipelines=[entry(), entry()]))
    with pytest.raises(Malformed, match="duration_s: is missing"):
        parse_scenario(document(pipelines=[entry()], duration_s=None, arrivals=[]))


def test_pipeline_shape_accepts_the_limits_of_a_box() -> None:
    """SLOs of a part of a millisecond and of an hour, texts that are empty, and as many as a box may have."""
    when = {"stage": "door", "label": "", "label_not": ["", "x"]}
    stages = [{"application": "door", "seen": {"": 1.0}}, {**STAGES[1], "when": when}]
    for slo_ms in (0.5, 3_600_000.0):
        assert parse_scenario(document(pipelines=[entry(latency_slo_ms=slo_ms, stages=stages)])).pipelines
    many = [entry(name=f"p{number}", rate_rps=0.0) for number in range(PIPELINES_MAX)]
    assert len(parse_scenario(document(pipelines=many)).pipelines) == PER_TENANT_MAX * ALL_TENANTS


def test_malformed_pipeline_is_left_out_and_others_are_kept() -> None:
    fine, odd = entry(name="fine"), entry(name="odd", latency_slo_ms=0)
    kept, names = without_malformed(document(pipelines=[odd, fine]))
    assert (kept["pipelines"], names) == ([fine], ["odd"])
    assert without_malformed(document(pipelines=[fine])) == (document(pipelines=[fine]), [])
    wrong = document(pipelines=[odd], duration_s=-1)
    assert without_malformed(wrong) == (wrong, [])


def test_pipelines_on_several_processors_are_read() -> None:
    box = {"memory_mb": 700, "processors": [{"name": "cpu"}, {"name": "other", "kind": "cpu"}]}
    assert parse_scenario(document(pipelines=[entry()], box=box)).pipelines


@pytest.mark.parametrize(
    ("text", "message"),
    [("count\n1\n", "has no column items"), ("items\n", "has no rows"), ("items\n-1\n", "line 2: '-1' is no number")],
)
def test_malformed_items_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "items.csv").write_text(text)
    with pytest.raises(Malformed, match=message):
        read_items(tmp_path / "items.csv", "items_csv")


def test_edited_scenario_refuses_the_edit_of_a_left_out_pipeline() -> None:
    """An edit of a pipeline that cannot be simulated is refused and not silently ignored."""
    fine, odd = entry(name="fine"), entry(name="odd", latency_slo_ms=0)
    today = document(pipelines=[odd, fine])
    edited = document(pipelines=[odd, {**fine, "rate_rps": 9.0}])
    assert with_as_many(today, edited, ["odd"])["pipelines"] == [{**fine, "rate_rps": 9.0}]
    assert with_as_many(today, edited, []) is edited
    with pytest.raises(Malformed, match="pipeline odd: is edited"):
        with_as_many(today, document(pipelines=[{**odd, "rate_rps": 9.0}, fine]), ["odd"])
