"""PlannerWishes: each planner's own, of all applications of a group."""

from appliance.policies.residency.base import Wish
from appliance.runtime.residency.wishes import PlannerWishes

LARGE, SMALL = Wish("large", 10**12, 2), Wish("small", 10**12, 1)


def test_wishes_of_source_replace_only_wishes_of_that_source() -> None:
    wishes = PlannerWishes()
    wishes.put("t/app", (LARGE,), "sessions")
    wishes.put("t/app", (SMALL,), "pipelines")
    wishes.put("t/app", (), "sessions")
    assert wishes.of("t/app".__eq__) == (SMALL,)


def test_wishes_of_applications_are_in_order_of_name() -> None:
    wishes = PlannerWishes()
    wishes.put("t/b", (SMALL,), "sessions")
    wishes.put("t/a", (LARGE,), "sessions")
    wishes.put("u/c", (LARGE,), "sessions")
    assert wishes.of(lambda one: one.startswith("t/")) == (LARGE, SMALL)


def test_wishes_of_removed_application_are_forgotten() -> None:
    wishes = PlannerWishes()
    wishes.put("t/a", (LARGE,), "sessions")
    wishes.put("t/b", (SMALL,), "sessions")
    wishes.forget(lambda one: one == "t/a")
    assert wishes.of(lambda one: True) == (SMALL,)
