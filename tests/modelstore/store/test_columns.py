"""Domain values come back from JSON columns as they went in."""

import datetime
import json
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sqlalchemy.dialects import sqlite

from appliance.domain.catalogue import (
    Accuracy,
    Evidence,
    ImageSpec,
    Latency,
    Profile,
    Quota,
    SampleScore,
    StateSpec,
    TaskKind,
    TaskSpec,
    TensorSpec,
)
from appliance.domain.jobs import ImportRequest
from appliance.modelstore.store.columns import Document, MeasuredAccuracy, Moment, Points, ReviewedProfile
from tests.modelstore.boxes import parts

pytestmark = pytest.mark.anyio

DIALECT = sqlite.dialect()
numbers = st.floats(allow_nan=False, allow_infinity=False)
names = st.text(max_size=8)
tensors = st.builds(TensorSpec, name=names, datatype=names, shape=st.tuples(st.integers(-1, 9), st.integers(-1, 9)))
tasks = st.builds(
    TaskSpec,
    kind=st.sampled_from(TaskKind),
    labels=st.lists(names, max_size=3).map(tuple),
    image=st.none() | st.builds(ImageSpec, mean=st.lists(numbers, max_size=3).map(tuple)),
    params=st.dictionaries(names, numbers | names, max_size=3),
    state=st.lists(st.builds(StateSpec, input=names, output=names, shape=st.tuples(st.integers(1, 9))), max_size=2).map(
        tuple
    ),
    constants=st.dictionaries(names, numbers, max_size=2),
)
DOCUMENTS = {
    TaskSpec: tasks,
    tuple[TensorSpec, ...]: st.lists(tensors, max_size=3).map(tuple),
    Quota: st.builds(Quota, stored_bytes=st.none() | st.integers(0, 2**60)),
    Profile: st.builds(
        Profile,
        processor=names,
        resident_bytes=st.integers(0, 2**50),
        peak_bytes=st.integers(0, 2**50),
        load_ms=numbers,
        load_cold_ms=numbers,
        latencies=st.lists(
            st.builds(Latency, batch=st.integers(1), p50_ms=numbers, p99_ms=numbers, concurrency=st.integers(1)),
            max_size=3,
        ).map(tuple),
        asleep_bytes=st.none() | st.integers(0, 2**50),
        wake_ns=st.none() | st.integers(0, 2**50),
    ),
    ImportRequest: st.builds(
        ImportRequest,
        tenant=names,
        name=names,
        source=names,
        task=tasks,
        metadata=st.dictionaries(names, names | numbers | st.lists(names, max_size=2), max_size=3),
        shared=st.booleans(),
        variant=st.none() | names,
    ),
}


@given(st.data())
def test_json_column_returns_equal_value(data: st.DataObject) -> None:
    """Every frozen dataclass that is stored as JSON equals itself after the way there and back."""
    shape, values = data.draw(st.sampled_from(list(DOCUMENTS.items())))
    value = data.draw(values)
    column = Document(shape)
    assert column.process_result_value(column.process_bind_param(value, DIALECT), DIALECT) == value


def test_profile_column_forgets_findings_of_another_review() -> None:
    """A build that an earlier review let pass counts as never reviewed; the rest of its profile stays."""
    profile = Profile("cpu", 1, 2, 3.0, 4.0, (), hazards=())
    column = ReviewedProfile()
    stored = column.process_bind_param(profile, DIALECT)
    assert column.process_result_value(stored, DIALECT) == profile
    for other in ({**stored, "review": 1}, {key: value for key, value in stored.items() if key != "review"}):
        assert column.process_result_value(other, DIALECT) == replace(profile, hazards=None)


def test_latency_column_of_earlier_version_means_one_run_at_a_time() -> None:
    """Rows of that version do not state the number of runs."""
    stored = Document(Profile).process_bind_param(Profile("cpu", 1, 2, 3.0, 4.0, (Latency(1, 5.0, 6.0),)), DIALECT)
    stored["latencies"] = [{"batch": 1, "p50_ms": 5.0, "p99_ms": 6.0}]
    assert Document(Profile).process_result_value(stored, DIALECT).latencies == (Latency(1, 5.0, 6.0, concurrency=1),)


def test_json_column_ignores_fields_of_newer_version() -> None:
    """A state folder that a newer version wrote to still opens after going back."""
    assert Document(Quota).process_result_value({"stored_bytes": 5, "later": True}, DIALECT) == Quota(stored_bytes=5)


def test_time_column_stores_utc_text_that_sorts() -> None:
    """Other zones are converted, and text order is time order."""
    zone = datetime.timezone(datetime.timedelta(hours=2))
    early = datetime.datetime(2026, 5, 1, 12, 0, tzinfo=zone)
    late = datetime.datetime(2026, 5, 1, 11, 0, tzinfo=datetime.UTC)
    column = Moment()
    texts = [column.process_bind_param(one, DIALECT) for one in (early, late)]
    assert texts == sorted(str(one) for one in texts)
    assert column.process_result_value(texts[0], DIALECT) == early


async def test_import_request_comes_back_whole_after_restart(tmp_path: Path) -> None:
    """The importer goes on from it."""
    task = TaskSpec(TaskKind.OBJECT_DETECTION, ("a",), ImageSpec(mean=(1.0, 2.0, 3.0)), "db", {"score_min": 0.5})
    request = ImportRequest("default", "m", "/x", task=task, metadata={"labels": ["a"], "params": {"k": 1}})
    async with parts(tmp_path, runs=False) as box:
        await box.store.imports.accept("1", request)
    async with parts(tmp_path, runs=False) as box:
        ((_job, stored),) = await box.store.jobs.unfinished()
        assert stored == request


@given(st.integers(0, 10**6), names, st.integers(0))
def test_accuracy_column_stores_shares_and_returns_points(millionths: int, text: str, samples: int) -> None:
    """Shares, as every version has written them."""
    accuracy = Accuracy(millionths / 10**4, text, text, samples, text)
    column, dialect = MeasuredAccuracy(), DIALECT
    written = column.process_bind_param(accuracy, dialect)
    earlier = {key: written[key] for key in ("value", "metric", "against", "samples", "data")}
    assert written["value"] == millionths / 10**6
    assert column.process_result_value(earlier, dialect) == accuracy  # what earlier versions wrote
    accuracy = replace(accuracy, scores=(SampleScore(1.0, 2.0), SampleScore(0.0, 1.0)), sample_set=text)
    written = column.process_bind_param(accuracy, dialect)
    assert column.process_result_value(json.loads(json.dumps(written)), dialect) == accuracy
    assert Points().process_bind_param(accuracy.points, dialect) == millionths / 10**6
    assert Points().process_result_value(millionths / 10**6, dialect) == accuracy.points


def test_dismissed_variant_of_earlier_version_reads_as_disagreed() -> None:
    """It kept the figure of the noise."""
    trial = {"samples": 4, "total": 0.8, "squares": 0.16, "verdict": "dismissed"}
    stored = {"value": 0.999, "metric": "1-error", "against": "fp32", "samples": 8, "evidence": "noise", "trial": trial}
    column = MeasuredAccuracy()
    found = column.process_result_value(stored, DIALECT)
    assert isinstance(found, Accuracy)
    assert (found.points, found.evidence, found.samples) == (20.0, Evidence.DISAGREED, 4)
