"""Which conditions follow from what is known of a box, and when they begin and end."""

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.domain.health.conditions import RULES, THE_BOX, Check, Severity, Subject, SubjectKind, Trouble, worst
from appliance.domain.health.facts import (
    ApplicationFacts,
    BoxFacts,
    CertificateFacts,
    DiskFacts,
    ImportFacts,
    KeyFacts,
    MemoryFacts,
    PipelineFacts,
    ProcessorFacts,
    ReceiverFacts,
    SessionFacts,
    VariantFacts,
)
from appliance.domain.health.memory import HealthMemory
from appliance.domain.health.recent import AGE_MAX_S, SLOT_S, SLOTS_MAX, RecentCounts, Share
from appliance.domain.sensors import Quantity, Reading
from appliance.domain.states import ProcessorState

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
GB = 10**9
ROOMY = MemoryFacts(available_bytes=8 * GB, total_bytes=16 * GB, used_bytes=GB, budget_bytes=2 * GB)
WELL = BoxFacts(
    now=NOW,
    oldest=NOW - 400 * DAY,
    newest=NOW - DAY,
    database_read_at=NOW - DAY,
    processors=(ProcessorFacts(name="cpu", state=ProcessorState.SERVING),),
    readings=(
        Reading("thermal", "package", Quantity.CELSIUS, 60.0, limit=100.0),
        Reading("thermal", "broken", Quantity.CELSIUS, None, limit=100.0),
        Reading("thermal", "free", Quantity.CELSIUS, 70.0),
        Reading("hwmon", "fan", Quantity.RPM, 2000.0, limit=1000.0),
    ),
    memory=ROOMY,
    disk=DiskFacts(free_bytes=50 * GB, total_bytes=100 * GB, reserve_bytes=10**8, days_left=300.0),
    certificate=CertificateFacts(path="cert.pem", ends_at=NOW + 300 * DAY),
    backup_at=NOW - DAY / 2,
)
GATE = Subject(SubjectKind.APPLICATION, "gate", "harbour")
SIGNS = Subject(SubjectKind.PIPELINE, "signs", "harbour")
GLASSES = Subject(SubjectKind.SESSION, "5f0c", "harbour")
DIGITS = Subject(SubjectKind.MODEL, "digits", "harbour")
KEY = Subject(SubjectKind.KEY, "k1", "harbour")
PHONE = Subject(SubjectKind.RECEIVER, "7c2e", "harbour")
BROKEN = Share(100, 90)
QUARANTINED = VariantFacts(model=DIGITS, variant="fp32", reason="ended three times")


def application(**known: Any) -> dict[str, Any]:
    return {"applications": (ApplicationFacts(subject=GATE, **known),)}


def memory(**known: Any) -> dict[str, Any]:
    return {"memory": replace(ROOMY, **known)}


def disk(**known: Any) -> dict[str, Any]:
    assert WELL.disk is not None
    return {"disk": replace(WELL.disk, **known)}


def processor(state: ProcessorState) -> dict[str, Any]:
    beside = ProcessorFacts(name="cpu", state=ProcessorState.SERVING)
    return {"processors": (beside, ProcessorFacts(name="gpu", state=state, reason="no answer"))}


CASES: list[tuple[Trouble, Severity, Subject, dict[str, Any]]] = [
    (Trouble.SERVICE_STOPPING, Severity.BAD, THE_BOX, {"is_ready": False}),
    (Trouble.RUN_STUCK, Severity.BAD, THE_BOX, {"is_stuck": True}),
    (Trouble.EVENT_LOOP_LATE, Severity.WARN, THE_BOX, {"loop_late_ms": 251.0}),
    (Trouble.DATABASE_FAILED, Severity.BAD, THE_BOX, {"database_error": "no such file"}),
    (
        Trouble.PROCESSOR_LOST,
        Severity.BAD,
        Subject(SubjectKind.PROCESSOR, "gpu"),
        processor(ProcessorState.LOST),
    ),
    (
        Trouble.PROCESSOR_THROTTLED,
        Severity.WARN,
        Subject(SubjectKind.PROCESSOR, "gpu"),
        processor(ProcessorState.THROTTLED),
    ),
    (Trouble.BOX_HOT, Severity.WARN, THE_BOX, {"throttled": {"gpu": "it is too hot"}}),
    (Trouble.MACHINE_MEMORY_LOW, Severity.WARN, THE_BOX, memory(available_bytes=GB // 10, bound="memory.max")),
    (Trouble.MEMORY_OVER_BUDGET, Severity.BAD, THE_BOX, memory(used_bytes=3 * GB)),
    (Trouble.MEMORY_NO_ROOM, Severity.WARN, THE_BOX, memory(loads=BROKEN)),
    (Trouble.RESIDENCY_THRASHES, Severity.WARN, GATE, {"thrashing": {GATE: 30}}),
    (Trouble.DISK_FULL, Severity.BAD, THE_BOX, disk(free_bytes=200 * 2**20, days_left=None)),
    (Trouble.DISK_LOW, Severity.WARN, THE_BOX, disk(free_bytes=4 * GB)),
    (Trouble.DISK_FILLS, Severity.WARN, THE_BOX, disk(days_left=0.6)),
    (Trouble.CLOCK_WRONG, Severity.BAD, THE_BOX, {"oldest": NOW + DAY}),
    (Trouble.CLOCK_WRONG, Severity.BAD, THE_BOX, {"newest": NOW + DAY}),
    (Trouble.APPLICATION_LATE, Severity.WARN, GATE, application(slo_ms=30.0, in_time=BROKEN)),
    (Trouble.APPLICATION_LATE, Severity.BAD, GATE, application(slo_ms=30.0, in_time=Share(7, 2))),
    (Trouble.APPLICATION_FAILS, Severity.WARN, GATE, application(answered=BROKEN)),
    (Trouble.APPLICATION_NEVER_FITS, Severity.BAD, GATE, application(never_fits="it needs 90 MB")),
    (Trouble.SLO_OUT_OF_REACH, Severity.WARN, GATE, application(slo_ms=1.0, out_of_reach="it takes 4 ms")),
    (
        Trouble.SESSION_BROKEN,
        Severity.BAD,
        GLASSES,
        {"sessions": (SessionFacts(subject=GLASSES, title="glasses at gate", windows=Share(11, 0)),)},
    ),
    (
        Trouble.SESSION_WAITS,
        Severity.WARN,
        GLASSES,
        {"sessions": (SessionFacts(subject=GLASSES, title="glasses at gate", is_waiting=True, reason="no room"),)},
    ),
    (
        Trouble.PIPELINE_LATE,
        Severity.BAD,
        SIGNS,
        {"pipelines": (PipelineFacts(subject=SIGNS, slo_ms=200.0, frames=Share(11, 0)),)},
    ),
    (
        Trouble.PIPELINE_WITHOUT_PLAN,
        Severity.BAD,
        SIGNS,
        {"pipelines": (PipelineFacts(subject=SIGNS, slo_ms=200.0, is_feasible=False, reason="no worker"),)},
    ),
    (
        Trouble.PIPELINE_DEGRADED,
        Severity.WARN,
        SIGNS,
        {"pipelines": (PipelineFacts(subject=SIGNS, slo_ms=200.0, is_degraded=True, reason="8 of 15 fps"),)},
    ),
    (
        Trouble.IMPORT_FAILED,
        Severity.WARN,
        DIGITS,
        {"failed_imports": (ImportFacts(model=DIGITS, error="no network", at=NOW),)},
    ),
    (Trouble.VARIANT_QUARANTINED, Severity.WARN, DIGITS, {"quarantined": (QUARANTINED, QUARANTINED)}),
    (Trouble.MODEL_DAMAGED, Severity.WARN, DIGITS, {"damaged": (replace(QUARANTINED, still_serves=True),)}),
    (Trouble.MODEL_DAMAGED, Severity.BAD, DIGITS, {"damaged": (QUARANTINED,)}),
    (
        Trouble.KEY_EXPIRED,
        Severity.WARN,
        KEY,
        {"expired_keys": (KeyFacts(subject=KEY, label="glasses", expires_at=NOW - DAY),)},
    ),
    (
        Trouble.KEY_EXPIRES_SOON,
        Severity.WARN,
        KEY,
        {"expiring_keys": (KeyFacts(subject=KEY, label="", expires_at=NOW + DAY, used_at=NOW),)},
    ),
    (Trouble.NOT_CONFINED, Severity.WARN, THE_BOX, {"missing_confinement": ("files",)}),
    (
        Trouble.CERTIFICATE_UNREADABLE,
        Severity.BAD,
        THE_BOX,
        {"certificate": CertificateFacts(path="cert.pem", ends_at=None, error="no PEM")},
    ),
    (
        Trouble.CERTIFICATE_ENDS_SOON,
        Severity.WARN,
        THE_BOX,
        {"certificate": CertificateFacts(path="cert.pem", ends_at=NOW + DAY)},
    ),
    (Trouble.BACKUP_OLD, Severity.WARN, THE_BOX, {"is_backup_due": True, "backup_at": NOW - 3 * DAY}),
    (Trouble.BACKUP_OLD, Severity.WARN, THE_BOX, {"is_backup_due": True, "backup_at": None}),
    (
        Trouble.CHORE_FAILED,
        Severity.WARN,
        THE_BOX._replace(name="nightly backup"),
        {"failed_chores": {"nightly backup": "no room"}},
    ),
    (
        Trouble.RECEIVER_FAILING,
        Severity.WARN,
        PHONE,
        {"failing_receivers": (ReceiverFacts(subject=PHONE, title="phone", reason="it refused the message"),)},
    ),
    (
        Trouble.CHECK_FAILED,
        Severity.BAD,
        THE_BOX._replace(name="disk"),
        {"unseen": {"disk": "no such folder"}, "disk": None},
    ),
]


def found(facts: BoxFacts, remembered: HealthMemory | None = None) -> dict[Trouble, Any]:
    """Return the conditions of a look at the box, by what they are."""
    checks, _ = (remembered or HealthMemory()).judged(facts)
    return {one.trouble: one for check in checks for one in check.conditions}


def test_box_in_order_has_no_condition_and_each_check_says_what_is_well() -> None:
    checks, changes = HealthMemory().judged(WELL)
    assert not any(check.conditions for check in checks)
    assert changes == []
    assert all(check.state is Severity.GOOD and check.well for check in checks)


@pytest.mark.parametrize(("trouble", "severity", "subject", "known"), CASES, ids=lambda value: str(value)[:24])
def test_one_trouble_gives_one_condition_with_subject_and_what_to_do(
    trouble: Trouble, severity: Severity, subject: Subject, known: dict[str, Any]
) -> None:
    seen = found(replace(WELL, **known))
    assert list(seen) == [trouble]
    assert (seen[trouble].severity, seen[trouble].subject, seen[trouble].since) == (severity, subject, NOW)
    assert seen[trouble].text.endswith(".")
    assert "{}" not in seen[trouble].text + seen[trouble].action
    assert seen[trouble].action.endswith(".")


def test_every_kind_of_trouble_but_those_of_two_is_a_case() -> None:
    """A box all of whose processors are lost has two conditions."""
    assert {trouble for trouble, *_ in CASES} | {Trouble.NO_PROCESSOR} == set(Trouble) == set(RULES)
    lost = (ProcessorFacts(name="cpu", state=ProcessorState.UNFIT, reason="its probe failed"),)
    assert set(found(replace(WELL, processors=lost))) == {Trouble.NO_PROCESSOR, Trouble.PROCESSOR_LOST}


def test_checks_of_a_box_without_sensors_disk_or_certificate_say_what_is_not_known() -> None:
    bare = BoxFacts(now=NOW, oldest=NOW - DAY, memory=ROOMY)
    checks, _ = HealthMemory().judged(bare)
    told = {check.name: check.well for check in checks}
    assert told["heat"] == "the machine has no sensor for it"
    assert (told["disk"], told["backup"], told["database"]) == ("not known", "there is none yet", "it can be read")
    assert "certificate" not in told


@pytest.mark.parametrize("share", [Share(100, 98), Share(2, 0), Share(1000, 960)], ids=str)
def test_few_late_requests_break_no_promise(share: Share) -> None:
    """Fewer than three, or no more than one in twenty."""
    assert found(replace(WELL, **application(slo_ms=30.0, in_time=share))) == {}


def test_broken_promise_stands_until_half_of_the_share_is_missed() -> None:
    """It keeps when it began; so one late request decides nothing."""
    remembered = HealthMemory()

    def seen(missed: int, later: datetime.timedelta) -> Any:
        known = application(slo_ms=30.0, in_time=Share(100, 100 - missed))
        return found(replace(WELL, now=NOW + later, **known), remembered).get(Trouble.APPLICATION_LATE)

    assert seen(5, DAY) is None
    assert seen(6, DAY).since == NOW + DAY
    assert seen(51, 2 * DAY).severity is Severity.BAD
    assert seen(30, 3 * DAY).severity is Severity.BAD
    assert seen(20, 3 * DAY).severity is Severity.WARN
    assert seen(3, 4 * DAY).since == NOW + DAY
    assert seen(2, 5 * DAY) is None
    assert seen(5, 6 * DAY) is None


@pytest.mark.parametrize(
    ("trouble", "begins", "stays", "ends"),
    [
        (Trouble.BOX_HOT, *({"readings": (replace(WELL.readings[0], value=c),)} for c in (100.0, 98.0, 96.0))),
        (Trouble.MACHINE_MEMORY_LOW, *(memory(available_bytes=GB // 100 * mb) for mb in (79, 90, 97))),
        (Trouble.DISK_LOW, *(disk(free_bytes=GB // 10 * part) for part in (49, 55, 61))),
        (Trouble.EVENT_LOOP_LATE, *({"loop_late_ms": ms} for ms in (260.0, 130.0, 120.0))),
        (Trouble.RESIDENCY_THRASHES, *({"thrashing": {GATE: count}} for count in (30, 15, 14))),
    ],
    ids=str,
)
def test_condition_of_a_figure_ends_at_a_better_one_than_it_began(
    trouble: Trouble, begins: dict[str, Any], stays: dict[str, Any], ends: dict[str, Any]
) -> None:
    remembered = HealthMemory()
    assert found(replace(WELL, **stays)) == {}
    for known, is_there in ((begins, True), (stays, True), (ends, False)):
        assert (trouble in found(replace(WELL, **known), remembered)) is is_there


def test_changes_tell_what_began_and_what_ended() -> None:
    remembered = HealthMemory()
    _, first = remembered.judged(replace(WELL, is_stuck=True))
    _, second = remembered.judged(replace(WELL, is_stuck=True))
    _, third = remembered.judged(WELL)
    assert [(event, one.trouble) for event, one in first] == [("condition began", Trouble.RUN_STUCK)]
    assert second == []
    assert [(event, one.trouble) for event, one in third] == [("condition ended", Trouble.RUN_STUCK)]


def test_tenant_sees_own_conditions_and_those_of_the_box_without_figures() -> None:
    """Nothing of another tenant's, unless it is shared; nothing that an operator alone looks after."""
    known = application(never_fits="it needs 90 MB") | disk(free_bytes=0) | {"failed_chores": {"sweep": "no"}}
    shared = replace(QUARANTINED, is_shared=True)
    checks, _ = HealthMemory().judged(replace(WELL, **known, quarantined=(shared,)))

    def seen(tenant: str) -> dict[Trouble, str]:
        return {one.trouble: one.detail for check in checks for one in check.as_seen_by(tenant).conditions}

    own = "harbour/digits fp32: ended three times"
    expected = {Trouble.DISK_FULL: "", Trouble.APPLICATION_NEVER_FITS: "it needs 90 MB"}
    assert seen("harbour") == expected | {Trouble.VARIANT_QUARANTINED: own}
    assert seen("museum") == {Trouble.DISK_FULL: "", Trouble.VARIANT_QUARANTINED: ""}


def test_worst_of_no_severities_is_good() -> None:
    assert worst([]) is Severity.GOOD
    assert worst([Severity.WARN, Severity.BAD, Severity.GOOD]) is Severity.BAD
    assert Check("disk", (), "there is room").state is Severity.GOOD


# -- counts of late ----------------------------------------------------------------------------------------------------


def test_recent_counts_sum_what_came_since_the_looks_before() -> None:
    recent = RecentCounts()
    assert recent.look(0, Share(7, 2)) == Share(7, 2)
    assert recent.look(1, Share(9, 4)) == Share(9, 4)
    assert recent.look(SLOT_S, Share(10, 5)) == Share(10, 5)


def test_recent_counts_forget_what_is_beyond_the_window() -> None:
    """Its oldest ten seconds go when thirty others had counts, and all of it after an hour."""
    recent = RecentCounts()
    for slot in range(SLOTS_MAX + 1):
        seen = recent.look(slot * SLOT_S, Share(10 * (slot + 1), 10 * slot))
    assert seen == Share(10 * SLOTS_MAX, 10 * SLOTS_MAX)
    last = SLOTS_MAX * SLOT_S
    totals = Share(10 * (SLOTS_MAX + 1), 10 * SLOTS_MAX)
    assert recent.look(last + AGE_MAX_S, totals).counted == 10
    assert recent.look(last + AGE_MAX_S + SLOT_S, totals) == Share()


@pytest.mark.parametrize("totals", [Share(2, 2), Share(20, 1)], ids=str)
def test_recent_counts_begin_anew_when_totals_fall(totals: Share) -> None:
    """The SLO is another one."""
    recent = RecentCounts()
    recent.look(0, Share(10, 5))
    assert recent.look(1, totals) == totals


def test_memory_keeps_counts_of_what_is_still_there() -> None:
    remembered = HealthMemory()
    remembered.lately("gate", 0, Share(10, 5))
    remembered.forget_but({"gate"})
    assert remembered.lately("gate", 1, Share(11, 6)) == Share(11, 6)
    remembered.forget_but(set())
    assert remembered.lately("gate", 2, Share(12, 7)) == Share(12, 7)


def test_operations_guide_explains_every_condition() -> None:
    """Id, severity, sentence, when it begins, and what to do."""
    guide = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in guide.splitlines()]
    told = {row[0].strip("`"): row for row in rows if len(row) == 5 and row[0].startswith("`")}
    for trouble, rule in RULES.items():
        _, severity, text, begins, action = told[trouble.value]
        assert (severity, text, action) == (
            rule.severity.value,
            rule.text.replace("{}", "*name*"),
            rule.action.replace("{}", "*path*"),
        )
        assert begins
