"""Devices in a simulation: they join the box's own registry, and every frame has one end."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.lab.scenario import read_scenario
from appliance.lab.simulation import simulate
from tests.lab.scenarios import figures as figures_of
from tests.lab.sessions.device_scenarios import CAMERA, GLASSES, LADDER, document, scenario

pytestmark = pytest.mark.gate("whole simulations")


def figures(**changes: Any) -> dict[str, Any]:
    return figures_of(document(**changes))


def test_cameras_are_answered_in_time() -> None:
    found = figures()
    sessions = found["sessions"]
    assert sessions["served_mean"] > 1.9
    assert sessions["in_time"] > 0.95
    assert sessions["drop_mean"] is None
    assert sessions["offload_interval_mean"] is None
    crossing = found["applications"]["crossing"]
    assert crossing["requests"] == sessions["sent"] == sum(found[k] for k in ("warm", "cold", "failed", "dropped"))
    assert crossing["accuracy_mean"] > 22.0, "the link and the processor allow more than the smallest network"


def test_glasses_track_between_results() -> None:
    sessions = figures(sessions=[GLASSES])["sessions"]
    assert sessions["served_mean"] > 2.5
    assert sessions["offload_interval_mean"] > 1.5, "they need not send every frame"
    assert 0.0 < sessions["drop_mean"] <= 0.04
    assert sessions["windows"] > 0
    assert sessions["in_time"] is None


def test_reported_downlink_of_a_device_is_that_of_its_results() -> None:
    """A result of 100 kB takes 20 ms more than a small message over 40 Mbit/s: when another device comes, the box
    counts on 10 + 2.6 ms up and on 30 ms down."""
    slow = {"uplink_mbps": 152, "downlink_mbps": 40, "rtt_ms": 20}
    first = {**GLASSES, "count": 1, "result_bytes": 100_000, "network": slow}
    journal = simulate(scenario(sessions=[first, {**first, "name": "later", "arrive_s": 5}]), keep_journal=True).journal
    problems: list[Any] = [one.facts["problem"] for one in journal.decisions if one.name == "offload"]
    (client,) = next(problem.clients for problem in reversed(problems) if problem.waiting)
    assert client.uplink_ms + client.downlink_ms == pytest.approx(10 + 2.6 + 10 + 20, abs=1.0)


def test_glasses_and_cameras_share_a_processor() -> None:
    found = figures(sessions=[GLASSES, CAMERA], arrivals=[{"application": "depth", "poisson_rps": 1.0}])
    groups = found["sessions"]["groups"]
    assert groups["glasses"]["sent"] > 0
    assert groups["camera"]["sent"] > 0
    assert found["sessions"]["sent"] == groups["glasses"]["sent"] + groups["camera"]["sent"]
    assert found["requests"] > found["sessions"]["sent"], "requests without a session are among them"


def test_session_output_depends_on_the_seed_alone() -> None:
    both = {"sessions": [GLASSES, CAMERA], "duration_s": 3}
    first = json.dumps(figures(**both))
    assert json.dumps(figures(**both)) == first
    assert json.dumps(figures(**both, seed=4)) != first


@pytest.mark.nightly("minutes of many devices")
def test_glasses_beyond_the_capacity_wait() -> None:
    crowd = {**GLASSES, "count": 30, "accuracy_slo": 0.02, "arrival_rps": 30}
    sessions = figures(sessions=[crowd], duration_s=4)["sessions"]
    assert 2 < sessions["served_mean"] < 28
    static = figures(sessions=[crowd], duration_s=4, policies={"offload": "static"})["sessions"]
    assert static["served_mean"] != sessions["served_mean"]


def test_fixed_network_policy_answers_with_that_network_alone() -> None:
    found = figures(policies={"adaptation": "open-smallest"})
    assert found["applications"]["crossing"]["accuracy_mean"] == LADDER["variants"][0]["accuracy"]


def test_session_link_outage_loses_frames_and_recovers() -> None:
    fault = {"kind": "link-down", "session": "camera-1", "at_s": 2, "for_s": 1.5}
    calm, found = figures(), figures(faults=[fault])
    assert found["sessions"]["reconnects"] >= 1
    assert found["sessions"]["in_time"] < calm["sessions"]["in_time"]
    back = [
        answer
        for answer in simulate(scenario(faults=[fault])).outcome.answers
        if answer.at_ns > 4 * 10**9 and answer.accuracy is not None
    ]
    assert len(back) > 45, "both send again: 2 x 15 a second"


def test_device_that_leaves_captures_no_more_frames() -> None:
    stay = {**CAMERA, "stay_s": 2}
    found = figures(sessions=[stay])["sessions"]
    assert found["captured"] == 2 * 2 * 15
    assert 0.5 < found["served_mean"] < 0.8


def test_session_links_and_drop_rates_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "lte.csv").write_text("time_s,uplink_mbps\n0,8\n1,20\n")
    (tmp_path / "rates.csv").write_text("time_s,drop_rate\n0,0.002\n3,0.012\n")
    camera = {**CAMERA, "network": {"csv": "lte.csv", "rtt_ms": 10, "begins_anywhere": True}}
    glasses = {**GLASSES, "drop_rate": "rates.csv", "reference": "fresh", "accuracy_slo": 0.06}
    path = tmp_path / "both.json"
    path.write_text(json.dumps(document(sessions=[camera, glasses])))
    found = simulate(read_scenario(path)).outcome.document()["sessions"]
    assert isinstance(found, dict)
    assert found["in_time"] > 0.5
    assert found["drop_mean"] > 0.0


@pytest.mark.parametrize(("name", "duration_s"), [("depth-5g", 2.0), ("traffic-lte", 2.0), ("street-cameras", 12.0)])
def test_scenarios_of_the_repository_run(name: str, duration_s: float) -> None:
    path = Path(__file__).parents[3] / "scenarios" / f"{name}.toml"
    found = simulate(read_scenario(path, {"duration_s": duration_s})).outcome.document()["sessions"]
    assert isinstance(found, dict)
    assert found["served_mean"] > 0


def test_network_that_ages_badly_is_given_up_for_the_large_one() -> None:
    """The small network loses six times as much with each frame. By its gap and a common rate it serves four of six
    devices, again and again; measured by itself it is given up for the large one, which serves all of them."""
    large, small = (
        {
            "name": name,
            "size_mb": 100,
            "accuracy": accuracy,
            "load_ms": 100,
            "resident": True,
            "input_bytes": size,
            "drop_times": times,
            "latency_ms": {"gpu": {"1": one, "2": 1.3 * one, "4": 2.0 * one}},
        }
        for name, accuracy, size, one, times in (("large", 90, 50_000, 24.0, 1), ("small", 89, 20_000, 6.0, 6))
    )
    crowd = {**GLASSES, "count": 6, "fps": 30, "accuracy_slo": 0.05, "drop_rate": 0.004, "reference": "fresh"}
    models = [{"name": "depth", "variants": [large, small]}, LADDER]
    sessions = figures(models=models, sessions=[crowd], duration_s=10)["sessions"]
    assert sessions["served_mean"] > 5.5
    assert sessions["windows"] - sessions["kept"] <= 6, "of each device the first one, in which it learns"
    assert sessions["drop_mean"] < 0.05
