"""Reloads: what is changed too often is seen once each time, and is calm again a minute later."""

from appliance.runtime.residency.reloads import Reloads
from tests.fakes.hand_clock import HandClock
from tests.fakes.sinks import Events


def test_application_thrashes_until_reloads_are_a_minute_old() -> None:
    clock, events = HandClock(), Events()
    reloads = Reloads(clock, events, per_min_max=3)
    for _ in range(2):
        reloads.note("t/app")
    assert (reloads.per_min("t/app"), reloads.is_thrashing("t/app")) == (2, False)
    reloads.note("t/app")
    assert reloads.is_thrashing("t/app")
    assert reloads.is_thrashing("t/app")
    assert not reloads.is_thrashing("t/other")
    assert reloads.thrashes("t/app") == 1
    assert events.of("residency thrashes") == [{"application": "t/app", "changes_per_min": 3}]
    clock.pass_s(61)
    assert not reloads.is_thrashing("t/app")
    assert (reloads.per_min("t/app"), reloads.thrashes("t/app")) == (0, 1)


def test_reload_history_ends_when_application_is_forgotten() -> None:
    reloads = Reloads(HandClock(), Events(), per_min_max=1)
    reloads.note("t/app")
    assert reloads.is_thrashing("t/app")
    reloads.forget("t/app")
    assert not reloads.is_thrashing("t/app")
    assert (reloads.per_min("t/app"), reloads.thrashes("t/app")) == (0, 0)
