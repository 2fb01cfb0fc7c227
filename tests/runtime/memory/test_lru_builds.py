"""Least recently used: the longest unused leave first, and no more of them than needed."""

from appliance.runtime.memory.lru_builds import LeastRecentlyUsed
from appliance.runtime.memory.room import ResidentBuild, RoomPlan, RoomProblem


def plan(need: int, free: int, *resident: ResidentBuild) -> RoomPlan:
    return LeastRecentlyUsed().plan(RoomProblem(100, "new", need, free, resident))


def build(name: str, size: int, used: int, pinned: bool = False) -> ResidentBuild:
    return ResidentBuild(name, size, used, pinned)


def test_oldest_leave_until_it_fits() -> None:
    """Two of three go, in the order of their last use."""
    assert plan(25, 5, build("a", 10, 3), build("b", 10, 1), build("c", 10, 2)).victims == ("b", "c")


def test_pinned_is_passed_over() -> None:
    """The oldest is in use, so the next one goes."""
    assert plan(10, 0, build("a", 10, 1, pinned=True), build("b", 10, 2)).victims == ("b",)


def test_ties_break_by_name() -> None:
    """Equal last use: the smaller build id goes."""
    assert plan(10, 0, build("b", 10, 1), build("a", 10, 1)).victims == ("a",)


def test_too_little_even_then() -> None:
    """It says how much would still be missing, and names no victim."""
    answer = plan(30, 5, build("a", 10, 1), build("b", 50, 2, pinned=True))
    assert answer == RoomPlan((), 0, False, "15 bytes are missing even without every unpinned build")


def test_fits_as_it_is() -> None:
    """No victim where there is room."""
    assert plan(5, 5, build("a", 10, 1)).victims == ()
