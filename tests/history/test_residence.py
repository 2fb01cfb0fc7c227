"""Stays in memory, as events and decisions tell them."""

from typing import Any

from appliance.history.residence import Residence
from appliance.policies.residency.base import Change, ResidencyPlan
from tests.fakes.hand_clock import HandClock
from tests.runtime.residency.residency_problems import problem

VARIANTS = {"big@cpu": ["fp32"], "small@cpu": ["int8", "int8-320"]}


def made() -> tuple[HandClock, Residence]:
    clock = HandClock()
    return clock, Residence(clock, lambda application, build: VARIANTS.get(build, []))


def facts(build: str, size: int = 10, *applications: str) -> dict[str, Any]:
    return {"build": build, "bytes": size, "applications": list(applications or ("harbour/face",))}


def planned(*changes: Change, reason: str = "harbour/face is asked for") -> dict[str, Any]:
    plan = ResidencyPlan("cold", None, changes, reason)
    return {"problem": problem(), "plan": plan, "policy": "p", "sharing": {}}


def test_stays_of_replaced_and_new_build_name_the_same_decision() -> None:
    """The decision has its number when it is stored."""
    clock, residence = made()
    residence.happened("variant loaded", facts("big@cpu", 100))
    clock.pass_s(5)
    stored = residence.decided("residency", planned(Change("harbour/face", "fp32", "int8-320")))
    assert stored is not None
    clock.pass_s(1)
    residence.happened("variant loaded", facts("small@cpu", 20))
    residence.happened("variant released", facts("big@cpu"))
    clock.pass_s(1)
    residence.happened("variant unloaded", facts("big@cpu"))
    stored(4711)
    changes = residence.unwritten()
    big, small = changes.stays
    assert (big.variant, big.came_by, big.came, big.left_by, big.went) == ("fp32", "loaded", None, "released", 4711)
    assert big.until == big.since + 7
    assert (small.variant, small.came, small.until, small.left_by) == ("int8", 4711, None, "")
    (reason,) = changes.reasons
    assert (reason.decision, reason.text, reason.tenants) == (4711, "harbour/face is asked for", "harbour")


def test_residency_decision_explains_a_change_once_within_two_minutes() -> None:
    """A later load into room that is there has no decision."""
    clock, residence = made()
    stored = residence.decided("residency", planned(Change("harbour/face", None, "fp32")))
    assert stored is not None
    stored(1)
    for _ in range(2):
        residence.happened("variant loaded", facts("big@cpu"))
        residence.happened("variant unloaded", facts("big@cpu"))
    residence.decided("residency", planned(Change("harbour/face", None, "fp32")))
    clock.pass_s(200)
    residence.happened("variant loaded", facts("big@cpu"))
    assert [row.came for row in residence.unwritten().stays] == [1, None, None]
    assert residence.decided("residency", planned()) is None
    assert residence.decided("drop", {"problem": {}, "answer": {}}) is None


def test_eviction_decision_without_policy_is_named_by_both_stays() -> None:
    """Least recently used: of the application that leaves and of the one that comes, whichever variant it has."""
    _, residence = made()
    residence.happened("variant loaded", facts("big@cpu", 1, "museum/sound"))
    rule = {
        "application": "harbour/face",
        "problem": {"resident": [{"application": "museum/sound"}]},
        "answer": {
            "outcome": "cold",
            "actions": [{"application": "museum/sound", "from": "fp32", "to": None}],
            "reason": "asked longest ago",
        },
    }
    stored = residence.decided("residency", rule)
    assert stored is not None
    stored(9)
    residence.happened("variant evicted", facts("big@cpu", 1, "museum/sound"))
    residence.happened("variant asleep", facts("big@cpu", 1, "museum/sound"))
    residence.happened("variant loaded", facts("small@cpu"))
    resident, asleep, newcomer = residence.unwritten().stays
    assert (resident.left_by, resident.went) == ("evicted", 9)
    assert (asleep.state, asleep.came_by, asleep.until) == ("asleep", "fell asleep", None)
    assert newcomer.came == 9


def test_stays_that_could_not_be_written_are_written_later() -> None:
    """With what has changed since; a written stay is written again only where a decision's number was missing."""
    _, residence = made()
    residence.begin_at(100)
    stored = residence.decided("residency", planned(Change("harbour/face", None, "fp32")))
    residence.happened("variant loaded", facts("big@cpu"))
    taken = residence.taken()
    assert [row.id for row in taken.stays] == [101]
    assert residence.unwritten() == taken
    residence.put_back()
    residence.happened("variant unloaded", facts("big@cpu"))
    (row,) = residence.taken().stays
    assert (row.left_by, row.came) == ("unloaded", None)
    residence.written()
    assert stored is not None
    stored(5)
    assert [(row.id, row.came) for row in residence.taken().stays] == [(101, 5)]
    residence.written()
    assert residence.taken().stays == []


def test_adjacent_windows_of_an_application_are_merged() -> None:
    """A busy application has a window a minute, not one for each request."""
    clock, residence = made()
    for pause in (1, 0.5, 1, 30):
        residence.window_opened("harbour/face")
        clock.pass_s(1)
        residence.window_closed("harbour/face")
        clock.pass_s(pause)
    residence.window_opened("harbour/face")
    clock.pass_s(2)
    closed, opened = residence.unwritten().windows
    assert closed.until - closed.since == 6.5
    assert opened.until - opened.since == 2


def test_box_stop_ends_all_stays_and_windows() -> None:
    """A deleted tenant is named no more."""
    _, residence = made()
    residence.happened("variant loaded", facts("big@cpu", 1, "harbour/face", "museum/face"))
    residence.happened("variant lost", facts("small@cpu"))
    residence.window_opened("harbour/face")
    residence.forget_tenant("harbour")
    residence.end_all()
    changes = residence.unwritten()
    assert [(row.applications, row.left_by) for row in changes.stays] == [("museum/face", "box stopped")]
    assert changes.windows == []


def test_stays_put_back_after_failed_write_lack_the_deleted_tenant() -> None:
    """The tenant was deleted while the write was under way."""
    clock, residence = made()
    residence.happened("variant loaded", facts("big@cpu", 1, "museum/sound", "harbour/face"))
    residence.happened("variant unloaded", facts("big@cpu"))
    residence.window_opened("museum/sound")
    residence.window_closed("museum/sound")
    clock.pass_s(5)
    residence.taken()
    residence.forget_tenant("museum")
    residence.put_back()
    changes = residence.taken()
    assert [row.applications for row in changes.stays] == ["harbour/face"]
    assert changes.windows == []
