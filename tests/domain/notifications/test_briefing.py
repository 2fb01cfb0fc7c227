"""What a receiver is told of conditions that come, go and change."""

import datetime
import itertools
from dataclasses import replace

from appliance.domain.health.conditions import Condition, Severity, Subject, SubjectKind, Trouble
from appliance.domain.notifications.briefing import PASSED_MAX, QUIET_S, QUIET_S_MAX, Briefing, ChangeKind, visible_to
from appliance.domain.notifications.receivers import Receiver, ReceiverKind

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
LOOK_S = 10


def receiver(severity_min: Severity = Severity.WARN) -> Receiver:
    return Receiver("7c2e", "harbour", "phone", ReceiverKind.WEBHOOK, "https://example.org/", "", severity_min, NOW)


def late(name: str, severity: Severity = Severity.WARN) -> Condition:
    subject = Subject(SubjectKind.APPLICATION, name, "harbour")
    return Condition(Trouble.APPLICATION_LATE, subject, severity, f"{name} is late.", "12 of 80", "Wait.", NOW)


GATE, DOOR = late("gate"), late("door", Severity.BAD)


def told(briefing: Briefing, now_s: float) -> list[tuple[ChangeKind, str, int]]:
    """Return what is told now, by change, name and times; the receiver knows it from then on."""
    changes = briefing.due(now_s)
    briefing.note_sent(changes, now_s)
    return [(one.kind, one.condition.subject.name, one.times) for one in changes]


def test_condition_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    briefing = Briefing(receiver())
    briefing.update([GATE])
    assert told(briefing, 0) == [(ChangeKind.BEGAN, "gate", 1)]
    briefing.update([GATE])
    assert told(briefing, 1000) == []
    briefing.update([])
    assert told(briefing, 2000) == [(ChangeKind.ENDED, "gate", 0)]
    assert told(briefing, 3000) == []


def test_several_changes_are_told_together_the_worst_first_and_endings_last() -> None:
    briefing = Briefing(receiver())
    briefing.update([late("pier")])
    told(briefing, 0)
    briefing.update([GATE, DOOR])
    assert told(briefing, QUIET_S) == [
        (ChangeKind.BEGAN, "door", 1),
        (ChangeKind.BEGAN, "gate", 1),
        (ChangeKind.ENDED, "pier", 0),
    ]


def test_what_concerns_the_box_stands_before_what_tenants_have_for_longer() -> None:
    """A message names the first few, so that a tenant with many conditions must not push out a full disk."""
    box = replace(receiver(), tenant=None)
    later = NOW + datetime.timedelta(hours=1)
    full = Condition(Trouble.DISK_FULL, Subject(SubjectKind.BOX, "box"), Severity.BAD, "Full.", "", "Act.", later)
    briefing = Briefing(box)
    briefing.update([GATE, DOOR, full])
    assert [name for _, name, _ in told(briefing, 0)] == ["box", "door", "gate"]


def test_condition_that_becomes_worse_is_told_again_and_one_that_eases_is_not() -> None:
    briefing = Briefing(receiver())
    briefing.update([GATE])
    told(briefing, 0)
    briefing.update([replace(GATE, severity=Severity.BAD)])
    assert told(briefing, QUIET_S) == [(ChangeKind.WORSE, "gate", 0)]
    briefing.update([GATE])
    assert told(briefing, 10 * QUIET_S) == []


def test_receiver_of_what_is_bad_hears_of_the_end_and_not_of_the_easing() -> None:
    briefing = Briefing(receiver(Severity.BAD))
    briefing.update([GATE, DOOR])
    assert told(briefing, 0) == [(ChangeKind.BEGAN, "door", 1)]
    briefing.update([GATE, replace(DOOR, severity=Severity.WARN)])
    assert told(briefing, QUIET_S) == []
    briefing.update([GATE])
    assert told(briefing, 2 * QUIET_S) == [(ChangeKind.ENDED, "door", 0)]


def test_condition_that_came_and_went_untold_is_told_as_passed_with_how_often() -> None:
    briefing = Briefing(receiver())
    for _ in range(3):
        briefing.update([GATE])
        briefing.update([])
    assert told(briefing, 0) == [(ChangeKind.PASSED, "gate", 3)]
    assert told(briefing, 1000) == []


def test_flapping_condition_is_told_at_intervals_that_double_and_holds_up_no_other() -> None:
    """An hour of a condition that changes with each look makes no more than seven messages."""
    briefing, times = Briefing(receiver()), []
    for now_s in range(0, 3600, LOOK_S):
        briefing.update([GATE] if now_s % (2 * LOOK_S) == 0 else [])
        if told(briefing, now_s):
            times.append(now_s)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len(times) <= 7
    assert all(after > before for before, after in itertools.pairwise(gaps))
    briefing.update([DOOR])
    assert (ChangeKind.BEGAN, "door", 1) in told(briefing, 3600)


def test_quiet_after_a_flapping_condition_is_bounded_and_ends_once_it_has_calmed_down() -> None:
    briefing, now_s = Briefing(receiver()), 0
    for turn in range(14):
        briefing.update([GATE] if turn % 2 == 0 else [])
        now_s += QUIET_S_MAX
        assert len(told(briefing, now_s)) == 1
    now_s += 10 * QUIET_S_MAX
    briefing.update([GATE, DOOR])
    assert len(told(briefing, now_s)) == 2
    briefing.update([DOOR])
    assert told(briefing, now_s + QUIET_S) == [(ChangeKind.ENDED, "gate", 0)]


def test_receiver_is_told_nothing_of_itself() -> None:
    """A message that says that messages do not arrive."""
    itself = replace(GATE, subject=Subject(SubjectKind.RECEIVER, "7c2e", "harbour"))
    briefing = Briefing(receiver())
    briefing.update([itself])
    assert told(briefing, 0) == []


def test_what_has_passed_while_a_receiver_was_away_is_bounded() -> None:
    briefing = Briefing(receiver())
    for number in range(PASSED_MAX + 50):
        briefing.update([late(f"gate-{number}")])
    briefing.update([])
    passed = told(briefing, 0)
    assert len(passed) == PASSED_MAX
    assert (ChangeKind.PASSED, f"gate-{PASSED_MAX + 49}", 1) in passed


def test_tenant_is_concerned_by_its_own_and_by_what_all_are_told() -> None:
    other = replace(GATE, subject=GATE.subject._replace(tenant="museum"))
    full = Condition(
        Trouble.DISK_FULL, Subject(SubjectKind.BOX), Severity.BAD, "The disk is full.", "1 MB", "Act.", NOW
    )
    own = replace(full, trouble=Trouble.BACKUP_OLD)
    everything = [GATE, other, full, own]
    assert list(visible_to(None, everything)) == everything
    seen = list(visible_to("harbour", everything))
    assert [one.trouble for one in seen] == [Trouble.APPLICATION_LATE, Trouble.DISK_FULL]
    assert [one.detail for one in seen] == ["12 of 80", ""]
