"""Our own policy: floors first, upgrades where they are worth most, and a floor gives way where it is surely not
needed meanwhile.
"""

from typing import Any

import pytest

from appliance.lab.plan import plan_one
from appliance.policies.residency.base import ApplicationState, Option, ResidencyProblem
from appliance.policies.residency.expected_utility import ExpectedUtility
from tests.instances.residency import application, problem

SECOND = 10**9
FACES, SPEECH, TEXT = "face_recognition", "speech_recognition", "text_classification"


def _plan(applications: list[dict[str, Any]], request: str, **more: Any) -> dict[str, str | None]:
    """Application → what it gets."""
    answer: Any = plan_one({**problem(applications, request, policy="expected-utility", **more)})
    return {a["application"]: a["to"] for a in answer["actions"]}


def test_absent_floors_load_before_upgrades_and_none_is_unloaded() -> None:
    """Absent floors come before upgrades, and an upgrade unloads no application."""
    names = ["face_recognition", "speech_recognition", "text_classification"]
    written = problem(
        [application(n) for n in names], names[0], memory_mb=360, intent="rebalance", policy="expected-utility"
    )
    answer: Any = plan_one(written)
    assert {(a["application"], a["to"]) for a in answer["actions"]} == {(n, "INT8") for n in names}


def test_absent_application_due_first_replaces_the_application_due_last() -> None:
    """The absent application that is due first takes the place of the application that is due last, not of an overdue
    one."""
    names = ["face_recognition", "speech_recognition", "text_classification"]
    due_s = {names[0]: 1010.0, names[1]: 990.0, names[2]: 1060.0}
    residents = [application(n, "INT8", next_request_s=due_s[n]) for n in names[1:]]
    asker = application(names[0], next_request_s=due_s[names[0]])
    written = problem([asker, *residents], names[0], memory_mb=230, intent="rebalance", policy="expected-utility")
    answer: Any = plan_one({**written, "history_window_s": 10.0})
    assert [(a["application"], a["to"]) for a in answer["actions"]] == [(names[2], None), (names[0], "INT8")]


def test_applications_due_about_together_do_not_change_places() -> None:
    there = application("text_classification", "INT8", next_request_s=1020.0, spread_s=10.0)
    absent = application("face_recognition", next_request_s=1019.9, spread_s=10.0)
    written = problem([there, absent], "face_recognition", memory_mb=150, intent="rebalance", policy="expected-utility")
    answer: Any = plan_one({**written, "history_window_s": 10.0})
    assert answer["actions"] == []


@pytest.mark.parametrize(("due_s", "gets"), [(2.0, {"c"}), (0.5, {"b", "c"})])
def test_application_gives_way_only_to_a_request_that_is_near(due_s: float, gets: set[str]) -> None:
    """Memory that is free goes to one of two applications. The other one gets that of an application expected later
    where its own request is near, and not where that is seconds away: until then there will be others, and each would
    be loaded."""
    options = (Option("fp32", 40, 40, 90.0, SECOND // 50), Option("int8", 11, 11, 88.0, SECOND // 125))
    held = {"a": ("fp32", 10.0), "b": ("int8", due_s), "c": ("int8", due_s)}
    applications = tuple(
        ApplicationState(name, options, variant, next_request_ns=int((1000 + ahead_s) * SECOND))
        for name, (variant, ahead_s) in held.items()
    )
    asked = ResidencyProblem(
        1000 * SECOND, 102, 10 * SECOND, SECOND // 10, applications, None, "rebalance", spread_ns=SECOND // 2
    )
    changes = ExpectedUtility().plan(asked).changes
    assert {change.application for change in changes if change.after == "fp32"} == gets


def test_floor_makes_room_for_an_upgrade_when_surely_not_needed() -> None:
    """Speech is asked in two seconds and text in a minute, both predicted to 50 ms: text's floor can be back in time.
    Predicted to 30 s, or soon asked a second time, it may not."""
    soon = application(SPEECH, "INT8", next_request_s=1002.0, spread_s=0.05)
    late = application(TEXT, "INT8", next_request_s=1060.0, spread_s=0.05)
    unsure = [{**soon, "spread_s": 30.0}, {**late, "next_request_s": 1010.0, "spread_s": 30.0}]
    assert _plan([soon, late], SPEECH, memory_mb=300, intent="rebalance") == {TEXT: None, SPEECH: "FP32"}
    assert _plan(unsure, SPEECH, memory_mb=300, intent="rebalance") == {}


def test_application_with_false_predictions_unloads_no_other() -> None:
    """The same two, whose predictions came true as seldom as chance has it: text is asked every twenty seconds,
    whatever is predicted, and stays."""
    doubtful = {"spread_s": 0.05, "rate_rps": 0.05, "prediction_hit_rate": 0.05}
    soon = application(SPEECH, "INT8", next_request_s=1002.0, **doubtful)
    late = application(TEXT, "INT8", next_request_s=1060.0, **doubtful)
    assert _plan([soon, late], SPEECH, memory_mb=300, intent="rebalance") == {}
    trusted = [{**a, "prediction_hit_rate": 1.0} for a in (soon, late)]
    assert _plan(trusted, SPEECH, memory_mb=300, intent="rebalance") == {TEXT: None, SPEECH: "FP32"}


def test_application_asked_often_gets_a_better_variant_despite_the_load() -> None:
    """Asked every second, whatever is predicted: no room beside what it has, but what a load costs it costs once."""
    doubtful = {"next_request_s": 1000.5, "spread_s": 0.4, "prediction_hit_rate": 0.01}
    often = application(SPEECH, "FP16", rate_rps=1.0, **doubtful)
    seldom = application(TEXT, "INT8", rate_rps=0.02, **doubtful)
    assert _plan([often, seldom], SPEECH, memory_mb=420, intent="rebalance") == {SPEECH: "FP32"}


def test_later_requests_count_besides_the_next_request() -> None:
    """Both are due in a second, and there is memory for one: the application that is asked three times gets it, else
    the application that loads faster."""
    short, long = (application(name, next_request_s=1001.0, spread_s=1.0) for name in (SPEECH, TEXT))
    thrice = {**long, "later_requests_s": [1001.5, 1002.0]}
    assert _plan([short, long], SPEECH, memory_mb=140, intent="rebalance") == {SPEECH: "INT8"}
    assert _plan([short, thrice], SPEECH, memory_mb=140, intent="rebalance") == {TEXT: "INT8"}


def test_unexpected_application_stays_while_there_is_room() -> None:
    """Nothing is known of two applications: what is in memory stays, and what fits comes; else both have something."""
    names = [FACES, SPEECH]
    written = [application(FACES, "FP32"), application(SPEECH)]
    assert _plan(written, names[0], memory_mb=650, intent="rebalance") == {SPEECH: "INT8"}
    assert _plan(written, names[0], memory_mb=540, intent="rebalance") == {FACES: "INT8", SPEECH: "FP32"}


def test_opening_window_unloads_no_other_application() -> None:
    """A window that opens brings what fits into free memory; more is found between requests."""
    asker = application(SPEECH, "INT8", next_request_s=1000.5)
    other = application(TEXT, "FP32", next_request_s=1500.0)
    assert _plan([asker, other], SPEECH, memory_mb=650, intent="procure") == {}
    assert _plan([asker, other], SPEECH, memory_mb=1000, intent="procure") == {SPEECH: "FP32"}


def test_requester_takes_memory_where_it_costs_least() -> None:
    """Faces are asked in half a minute, text in five seconds: for speech it is faces that fall, to the floor and no
    further.
    """
    asker = application(SPEECH)
    residents = [
        application(FACES, "FP32", next_request_s=1030.0, spread_s=1.0),
        application(TEXT, "FP32", next_request_s=1005.0, spread_s=1.0),
    ]
    assert _plan([asker, *residents], SPEECH, memory_mb=1040) == {FACES: "INT8", SPEECH: "FP32"}


def test_requester_takes_floors_only_when_nothing_else_suffices() -> None:
    """Two floors and 20 MB: the application that is asked later leaves, for the requester's smallest variant alone."""
    residents = [
        application(FACES, "INT8", next_request_s=1001.5, spread_s=1.0),
        application(TEXT, "INT8", next_request_s=1009.0, spread_s=1.0),
    ]
    assert _plan([application(SPEECH), *residents], SPEECH, memory_mb=297) == {TEXT: None, SPEECH: "INT8"}


def test_requester_leaves_a_wished_variant_in_place() -> None:
    """Text falls as far as the wish lets it, and no further."""
    wished = application(TEXT, "FP32", next_request_s=1500.0, keep=[{"variant": "FP16", "until_s": 1100.0}])
    assert _plan([application(SPEECH), wished], SPEECH, memory_mb=700) == {TEXT: "FP16", SPEECH: "FP32"}


@pytest.mark.parametrize("until_s", [990.0, 1100.0])
def test_wish_keeps_its_variant_until_it_expires(until_s: float) -> None:
    """As long as the wish lasts, what a planner wants kept gives way to no upgrade."""
    wished = application(TEXT, "FP32", next_request_s=1500.0, keep=[{"variant": "FP16", "until_s": until_s}])
    asker = application(SPEECH, "INT8", next_request_s=1003.0)
    changes = _plan([asker, {**wished, "spread_s": 0.5}], SPEECH, memory_mb=640, intent="rebalance")
    assert changes.get(TEXT, "FP32") in ({"FP32", "FP16"} if until_s > 1000 else {"INT8", None})


def test_procurement_without_room_is_skipped_and_names_missing_memory() -> None:
    """No application gives way while no request waits, so the reason names none."""
    options = (Option("v", 100, 100, 90.0, 1000),)
    states = (ApplicationState("a", options, None), ApplicationState("b", options, "v", pinned=True))
    plan = ExpectedUtility().plan(ResidencyProblem(0, 150, 0, 0, states, "a", "procure"))
    assert plan.outcome == "skipped"
    assert plan.reason.endswith("v needs 0.0001 MB, 5e-05 MB are free")
