"""The experiments of Jellyfish and ARISE: short runs of them, and what is made of their numbers."""

from itertools import pairwise

import pytest

from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from reproduce import arise, jellyfish
from reproduce.claims import Claims, over


def test_jellyfish_run_times_are_those_of_the_paper() -> None:
    assert jellyfish.run_ms(128, 1) == pytest.approx(23.0, rel=0.02)
    assert jellyfish.run_ms(128, 4) == pytest.approx(32.0, rel=0.02)
    assert 3 / jellyfish.run_ms(224, 3) * 1000 == pytest.approx(90, rel=0.03)
    assert 1 / jellyfish.run_ms(416, 1) * 1000 == pytest.approx(32, rel=0.03)


def test_jellyfish_policies_are_compared_on_equal_sessions() -> None:
    clients = jellyfish.MIXED[4]
    ours, fixed, there = (
        jellyfish.document(clients, "lte", policy, 1, 5.0)
        for policy in (jellyfish.OURS, "open-middle", "open-middle, rate")
    )
    assert ours["sessions"] == fixed["sessions"]
    assert [{**one, "fits": "deadline"} for one in there["sessions"]] == fixed["sessions"]
    assert parse_scenario(there).policies == {"adaptation": "open-middle"}


def test_jellyfish_cameras_do_not_capture_at_the_same_instants() -> None:
    """Each client comes 1 to 10 s after the previous client, by the seed, and no whole number of frames after it."""
    clients = [(100, 15)] * 8
    first, again, other = (
        [one["arrive_s"] for one in jellyfish.document(clients, "lte", policy, seed, 60.0)["sessions"]]
        for policy, seed in ((jellyfish.OURS, 1), ("open-middle", 1), (jellyfish.OURS, 2))
    )
    assert first == again != other
    assert all(1.0 <= later - one <= 10.0 for one, later in pairwise(first))
    assert len({round(15 * at % 1.0, 6) for at in first}) == len(first)


def test_arise_crowd_has_the_stated_size_and_slas() -> None:
    setting = arise.SETTINGS["depth, 5G, mixed"]
    document = arise.document(setting, "static", 1, 5.0)
    assert sum(entry["count"] for entry in document["sessions"]) == arise.DOOR >= 30
    assert {entry["accuracy_slo"] for entry in document["sessions"]} == set(setting.slas)


def test_arise_sum_of_loads_bounds_the_served_clients() -> None:
    """Of detectors with intervals that use up the SLA 8.4 fit, more where SLAs are laxer and where rates are lower."""
    found = {name: arise.fitting(setting) for name, setting in arise.SETTINGS.items()}
    assert found["detection, 5G, 0.2"] == pytest.approx(8.4, abs=0.05)
    assert found["depth, 5G, 0.02"] == pytest.approx(15.3, abs=0.05)
    assert found["depth, 5G, 0.02"] < found["depth, 5G, 0.04"] < found["depth, 5G, 0.06"]
    served = {f"{name}/{one}/served": 4.0 for name, setting in arise.SETTINGS.items() for one in setting.policies}
    keys = ("windows", "like_windows", "interval", "batch", "idle")
    rest = {f"{name}/{one}/{key}": 1.0 for name, s in arise.SETTINGS.items() for one in s.policies for key in keys}
    bounds = [one for one in arise.PAPER.statements([{**rest, **served}]) if "sum of loads" in one.what]
    assert [one.ours and one.ours.mean for one in bounds] == pytest.approx([value / 4.0 for value in found.values()])


def test_short_runs_of_jellyfish_and_arise_give_their_numbers() -> None:
    """Devices that fit pictures to the rate of their link only are late with the largest network."""
    own = jellyfish.run([(100, 15)] * 1, "synthetic", "open-largest", 1, 6.0)
    there = jellyfish.run([(100, 15)] * 1, "synthetic", "open-largest, rate", 1, 6.0)
    assert there["missed"] > own["missed"]
    found = arise.run(arise.SETTINGS["detection, 5G, 0.2"], "static-detection", 1, 2.0, door=6)
    assert found["served"] > 0
    assert found["interval"] == pytest.approx(5.0, abs=0.5)


def test_devices_with_a_fixed_picture_size_are_late_on_a_narrow_link() -> None:
    """They are late where the planner does not know of the link; ours are not."""
    clients = [(100, 15)] * 1
    assert jellyfish.ABLATIONS["pictures of one size"].endswith(f", {jellyfish.MIDDLE_PX}")
    document = jellyfish.document(clients, "synthetic", f"half-budget, rate, {jellyfish.MIDDLE_PX}", 2, 6.0)
    document["sessions"][0]["network"] = {"uplink_mbps": 4, "rtt_ms": 2, "downlink_mbps": 1000}
    found = simulate(parse_scenario(document)).outcome.document()["sessions"]
    assert isinstance(found, dict)
    assert found["sent"] > 0
    assert not found["in_time"]
    assert jellyfish.run(clients, "synthetic", jellyfish.OURS, 2, 6.0)["missed"] < 0.1


def test_claims_state_their_bound_and_whether_they_hold() -> None:
    claims = Claims([{"a": 1.0, "b": 4.0}, {"a": 3.0, "b": 4.0}])
    claims.say("1", "a", "–", "a", least=2.0)
    claims.say("1", "a / b", "–", lambda one: one["a"] / one["b"], most=0.4)
    claims.say("1", "b", "4", "b", basis="fitted")
    claims.say("1", "b / 0", "4", over("b", lambda one: 0.0), least=1.0)
    assert [claim.holds for claim in claims.found] == [True, False, None, None]
    assert [claim.asked for claim in claims.found] == [">= 2", "<= 0.4", "", ">= 1"]
    assert claims.found[1].document()["ours"][0] == 0.5
    assert claims.found[2].document()["basis"] == "fitted"
    assert claims.found[3].document()["ours"] is None


@pytest.mark.parametrize("paper", ["arise", "jellyfish"])
def test_statements_need_only_numbers_of_the_experiments(paper: str) -> None:
    made = {"arise": arise.PAPER, "jellyfish": jellyfish.PAPER}[paper]
    numbers = {name: value for experiment in made.experiments for name, value in _numbers(paper, experiment).items()}
    found = made.statements([numbers, numbers])
    assert any(claim.holds is not None for claim in found)
    assert len({claim.what for claim in found}) == len(found)


def _numbers(paper: str, experiment: str) -> dict[str, float]:
    """As an experiment of this name would give them, all 1."""
    if paper == "arise":
        name, _, policy = experiment.rpartition(" ")
        keys = ("served", "windows", "like_windows", "interval", "drop", "batch", "idle", "removals")
        return {f"{name}/{policy}/{key}": 1.0 for key in keys}
    kind, first, second, *rest = experiment.split(" ", 3)
    at = {
        "grid": lambda: f"synthetic/{first}/{second}/{rest[0]}/{jellyfish.OURS}",
        "compare": lambda: f"{first}/{second}/15/4/{rest[0]}",
        "ablation": lambda: f"{first}/{second}/15/4/{rest[0]}",
        "mixed": lambda: f"lte/mixed/{first}/{' '.join((second, *rest))}",
    }[kind]()
    return {f"{at}/{key}": 1.0 for key in ("missed", "accuracy", "busy", "p50", "p99")}
