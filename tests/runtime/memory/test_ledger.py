"""The account of memory by itself: what is promised, what is there, and what a policy may not plan."""

import pytest

from appliance.domain.states import ResidencyState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.ledger import Ledger
from appliance.runtime.memory.room import Replacement, RoomPlan, RoomProblem


def resident(ledger: Ledger, name: str, size: int, peak: int | None = None) -> LoadedBuild:
    """A build that has been loaded, through all steps."""
    build = ledger.entry(name, size, peak or size)
    build.to(ResidencyState.LOADING)
    ledger.promise(build)
    ledger.begin(build)
    ledger.recount(build)
    build.to(ResidencyState.RESIDENT)
    return build


def test_promised_memory_is_not_free_and_not_used_before_its_load_begins() -> None:
    """Then its peak is used, then its size."""
    ledger = Ledger(100)
    build = ledger.entry("a", 30, 50)
    ledger.promise(build)
    assert (ledger.used_bytes, ledger.free_bytes, ledger.has_room_beside(51)) == (0, 50, False)
    ledger.begin(build)
    assert (ledger.used_bytes, ledger.free_bytes) == (50, 50)
    ledger.recount(build)
    assert (ledger.used_bytes, ledger.free_bytes) == (30, 70)


def test_memory_of_a_leaving_build_may_be_promised_but_is_not_free() -> None:
    """A new build may be promised the bytes of a leaving one; it may not load before they are back."""
    ledger = Ledger(100)
    old = resident(ledger, "old", 80)
    old.to(ResidencyState.UNLOADING)
    ledger.leave(old)
    new = ledger.entry("new", 60, 60)
    ledger.promise(new)
    assert not ledger.is_free(new)
    ledger.left(old)
    assert ledger.is_free(new)


def test_lender_covers_the_peaks_of_loads_one_after_the_other() -> None:
    """Two builds that take 10 and need 30 while they load, and a third that needs 60: 80 are promised, not 120. Each of
    the two begins when the lender has what it needs, and the lender begins last.
    """
    ledger = Ledger(80)
    first, second, lender = (ledger.entry(name, 10, peak) for name, peak in (("a", 30), ("b", 30), ("c", 60)))
    for build, promised in ((first, 10), (second, 10), (lender, 60)):
        ledger.promise(build, promised)
    ledger.lend(lender, (first, second))
    assert ledger.free_bytes == 0
    for build in (first, second):
        assert (ledger.is_free(build), ledger.is_free(lender)) == (True, False)
        ledger.begin(build)
        assert (build.bytes, lender.bytes, ledger.free_bytes) == (30, 40, 0)
        ledger.recount(build)
        assert (build.bytes, lender.bytes, ledger.free_bytes) == (10, 60, 0)
    assert ledger.is_free(lender)
    ledger.begin(lender)
    ledger.recount(lender)
    assert (ledger.used_bytes, ledger.free_bytes) == (30, 50)


def test_borrower_whose_load_fails_gives_back_what_it_borrowed() -> None:
    ledger = Ledger(70)
    borrower, lender = ledger.entry("a", 10, 30), ledger.entry("c", 60, 60)
    ledger.promise(borrower, 10)
    ledger.promise(lender, 60)
    ledger.lend(lender, (borrower,))
    ledger.begin(borrower)
    ledger.cancel(borrower)
    assert (lender.bytes, ledger.free_bytes, ledger.is_free(lender)) == (60, 10, True)


def test_lender_that_is_given_up_leaves_its_borrowers_the_free_memory() -> None:
    """One borrower is under way and keeps what it needs, the next gets it out of free memory, the last finds none."""
    ledger = Ledger(80)
    under_way, next_, last, lender = (
        ledger.entry(name, 10, peak) for name, peak in zip("abcd", (30, 30, 40, 50), strict=True)
    )
    for build in (under_way, next_, last):
        ledger.promise(build, 10)
    ledger.promise(lender, 50)
    ledger.lend(lender, (under_way, next_, last))
    ledger.begin(under_way)
    ledger.give_up(lender)
    ledger.cancel(lender)
    assert [build.bytes for build in (under_way, next_, last)] == [30, 30, 10]
    assert [build.borrows_bytes for build in (under_way, next_, last)] == [0, 0, 30]
    assert ledger.free_bytes == 10
    ledger.recount(under_way)
    assert ledger.free_bytes == 30


def test_cancelled_load_leaves_the_ledger_unchanged() -> None:
    ledger = Ledger(100)
    build = ledger.entry("a", 30, 50)
    ledger.promise(build)
    ledger.begin(build)
    ledger.cancel(build)
    assert (ledger.used_bytes, ledger.free_bytes, build.bytes) == (0, 100, 0)


def test_new_figures_are_taken_over_while_a_build_is_absent() -> None:
    """Figures of a resident build wait for `recount`; a record is dropped when it is no longer needed."""
    ledger = Ledger(100)
    build = resident(ledger, "a", 30)
    assert ledger.entry("a", 40, 40).resident_bytes == 30
    ledger.forget(build)
    assert ledger.get("a") is build
    away = ledger.entry("b", 30, 30)
    assert ledger.entry("b", 40, 50).need_bytes == 50
    ledger.forget(away)
    assert ledger.get("b") is None


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (RoomPlan(("a", "a"), 40, True, ""), "a victim twice"),
        (RoomPlan(("held",), 40, True, ""), "in use"),
        (RoomPlan(("a",), 40, True, "", (Replacement("b", "c", 1, 1),)), "without a victim"),
        (RoomPlan((), 0, True, ""), "too little"),
        (RoomPlan(("a",), 40, True, "", (Replacement("a", "c", 21, 25),)), "too little"),
        (RoomPlan(("a",), 40, True, "", (Replacement("a", "held", 1, 1),)), "there already"),
    ],
)
def test_room_plan_that_breaks_a_rule_is_caught(plan: RoomPlan, fault: str) -> None:
    """Before it is enacted."""
    ledger = Ledger(100)
    resident(ledger, "a", 40)
    resident(ledger, "held", 40).pins = 1
    problem = RoomProblem(0, "new", 40, ledger.free_bytes, ledger.residents())
    ledger.check(RoomPlan(("a",), 40, True, ""), problem)
    with pytest.raises(AssertionError, match=fault):
        ledger.check(plan, problem)
