"""Devices of a scenario whose frames go through a pipeline: clients of it, let in and told what to send as by a box."""

from typing import Any

import pytest

from appliance.lab.left_out import without_malformed
from appliance.lab.pipeline_shapes import pipeline_of
from appliance.lab.problems.base import Malformed
from appliance.lab.scenario import parse_scenario
from appliance.lab.sessions.devices import _camera_before
from appliance.lab.simulation import simulate
from appliance.runtime.sessions.pipeline_service import CUT_SIDE
from appliance.runtime.sessions.sent import BYTES_PER_PIXEL
from tests.harness.lanes import seeds
from tests.lab.pipelines.signs import STAGES
from tests.lab.pipelines.streamed import CAMERA, FAST, document
from tests.lab.refusals import refusal
from tests.lab.scenarios import figures as figures_of

pytestmark = pytest.mark.gate("whole simulations")


def figures(*sessions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return figures_of(document(*sessions, **changes))


def test_camera_streams_frames_through_a_pipeline() -> None:
    """Its frames are the pipeline's, not requests of an application; the device sees them in time as the box does."""
    found = figures(CAMERA)
    sessions, pipeline = found["sessions"], found["pipelines"]["signs"]
    assert sessions["served_mean"] > 0.98
    assert (sessions["captured"], sessions["sent"]) == (100, 99), "the first one comes before the plan"
    assert pipeline["frames"] == 99
    assert sessions["in_time"] == 1.0
    assert sessions["accuracy_in_time"] is None
    assert pipeline["finished_in_time"] == 99
    assert pipeline["items_per_frame"]["read"] == 3.0
    assert pipeline["latency_ms"]["p50"] == pytest.approx(50.9, abs=1)
    assert found["requests"] == 0
    assert pipeline["clients"] == {"joined": 0, "refused": 0}


def test_camera_joins_the_pipeline_as_a_client_with_its_own_id() -> None:
    """By the very admission of the box, which tells of it; and it leaves when the device does."""
    run = simulate(parse_scenario(document({**CAMERA, "count": 2, "arrive_s": 1, "stay_s": 5})), keep_journal=True)
    for event in ("pipeline client joined", "pipeline client left"):
        assert [one.facts["client"] for one in run.journal.events if one.name == event] == ["s00001", "s00002"]


@pytest.mark.nightly("another minute of many devices")
def test_cameras_beyond_the_capacity_wait() -> None:
    """A frame takes 50 ms of one worker: of ten cameras at most three are served, and those are in time."""
    sessions = figures({**CAMERA, "count": 10, "arrival_rps": 2})["sessions"]
    assert 1.5 < sessions["served_mean"] <= 4.0
    assert sessions["in_time"] > 0.95
    assert sessions["within_slo"] == 1.0


@pytest.mark.nightly("another minute of many devices")
def test_camera_that_leaves_frees_room_for_a_waiting_camera() -> None:
    """Two sets of cameras, of which the second waits until the first has gone."""
    first = {**CAMERA, "name": "first", "count": 3, "stay_s": 8}
    second = {**CAMERA, "name": "second", "count": 3, "arrive_s": 2, "stay_s": 17}
    groups = figures(first, second)["sessions"]["groups"]
    assert groups["first"]["sent"] > 80
    assert groups["second"]["sent"] > 80


@pytest.mark.parametrize(("uplink_mbps", "served"), [(0.05, 0.0), (2.0, 1.0)])
def test_camera_on_a_link_too_slow_for_the_slo_is_not_served(uplink_mbps: float, served: float) -> None:
    """A link that not even the smallest picture crosses in time admits no camera; on a slow link pictures are small."""
    slow = {**CAMERA, "network": {"uplink_mbps": uplink_mbps, "rtt_ms": 10}}
    found = figures(slow)["sessions"]
    assert found["served_mean"] == pytest.approx(served, abs=0.1)
    if served:
        assert found["in_time"] > 0.9


def test_camera_link_outage_loses_frames_and_recovers() -> None:
    """Each frame that was sent has one end, on either side; the device is admitted again."""
    fault = {"kind": "link-down", "session": "camera", "at_s": 5, "for_s": 5}
    sessions = figures(CAMERA, faults=[fault])["sessions"]
    assert sessions["reconnects"] >= 1
    assert 0.5 < sessions["in_time"] < 1.0
    assert sessions["sent"] > 60


def test_box_serves_application_and_pipeline_devices_together() -> None:
    """Devices of an application, of a pipeline, clients of that, and frames without a client; twice the same."""
    reader = {"name": "reader", "application": "read", "rate_rps": 5, "latency_slo_ms": 300, "network": FAST}
    more = {"pipeline": {"rate_rps": 1.0, "clients": [{"fps": 2}]}}
    found = figures(CAMERA, reader, **more)
    groups, pipeline = found["sessions"]["groups"], found["pipelines"]["signs"]
    assert groups["camera"]["sent"] > 90
    assert groups["reader"]["sent"] == found["requests"] > 90
    assert groups["reader"]["accuracy_in_time"] > 80
    assert groups["camera"]["accuracy_in_time"] is None
    assert found["sessions"]["accuracy_in_time"] == groups["reader"]["accuracy_in_time"]
    assert pipeline["frames"] > groups["camera"]["sent"] + 45
    assert pipeline["clients"] == {"joined": 1, "refused": 0}
    assert figures(CAMERA, reader, **more) == found


@pytest.mark.parametrize("seed", seeds(gate=2, nightly=4))
def test_camera_frames_have_one_end_each_under_faults(seed: int) -> None:
    """Links that fail, a processor that is lost and one that is slow; a simulation raises where a frame has none."""
    cameras = {**CAMERA, "count": 4, "arrival_rps": 0.5, "network": {"like": "lte", "rtt_ms": 40}}
    faults = [
        {"kind": "link-down", "session": "camera", "at_s": 4, "for_s": 3},
        {"kind": "processor-lost", "at_s": 9, "for_s": 2, "target": "cpu"},
        {"kind": "slow-down", "at_s": 13, "for_s": 3, "target": "cpu", "factor": 2.0},
    ]
    found = figures(cameras, faults=faults, seed=seed)
    assert found["pipelines"]["signs"]["finished_in_time"] > 0
    assert found["pipelines"]["signs"]["frames"] <= found["sessions"]["sent"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"pipeline": "nobody"}, "sessions[0].pipeline"),
    ({"application": "read"}, "sessions[0]"),
    ({"pipeline": None}, "sessions[0]"),
    ({"accuracy_slo": 0.02, "rate_rps": None, "fps": 5}, "sessions[0].accuracy_slo"),
    ({"accuracy_min": 50}, "sessions[0].accuracy_min"),
]


@pytest.mark.parametrize(("changes", "key"), WRONG)
def test_malformed_camera_session_is_refused_by_its_key(changes: dict[str, Any], key: str) -> None:
    assert refusal(document({**CAMERA, **changes}), parse_scenario).startswith(
        f"{key}:" if key == "sessions[0]" else key
    )


def test_pipeline_without_frames_or_clients_is_refused() -> None:
    with pytest.raises(Malformed, match=r"pipelines\[0\]: needs one of .* sessions that name it"):
        parse_scenario(document())


def test_malformed_pipeline_is_left_out_with_its_devices() -> None:
    """All others are simulated."""
    odd = {"name": "odd", "latency_slo_ms": 200, "stages": [{"application": "find", "after": "nothing"}]}
    fine = {"name": "signs", "latency_slo_ms": 200, "stages": STAGES}
    written = {**document(CAMERA, {**CAMERA, "name": "other", "pipeline": "odd"}), "pipelines": [odd, fine]}
    kept, names = without_malformed(written)
    assert names == ["odd"]
    assert [one["name"] for one in kept["sessions"]] == ["camera"]
    parse_scenario(kept)


def test_camera_resolution_follows_the_stages_of_its_pipeline() -> None:
    """A network that looks at whole pictures takes few pixels; lines are cut from what the camera has."""
    variant = {"name": "one", "size_mb": 10, "accuracy": 80, "load_ms": 50, "latency_ms": {"cpu": {"1": 20}}}
    find = {"name": "find", "variants": [{**variant, "input_px": 320}]}
    read = {"name": "read", "variants": [{**variant, "input_px": 64}]}
    sides, bytes_ = [], []
    for stages in (STAGES, STAGES[:1]):
        scenario = parse_scenario(document(CAMERA, models=[find, read], pipeline={"stages": stages}))
        shape = scenario.pipelines[0]
        camera = _camera_before(scenario, shape, pipeline_of(shape, {"find": "default", "read": "default"}))
        sides.append(camera.side_px)
        bytes_.append(camera.bytes_of(320, 75))
    assert sides == [CUT_SIDE, 320]
    assert bytes_[0] == bytes_[1] == pytest.approx(BYTES_PER_PIXEL * 320**2, abs=1)
