"""PlannerWishes: each planner's own, of all applications of a group."""

from appliance.policies.residency.base import Wish
from appliance.runtime.residency.wishes import PlannerWishes

LARGE, SMALL = Wish("large", 10**12, 2), Wish("small", 10**12, 1)


def test_a_source_replaces_its_own_only() -> None:
    wishes = PlannerWishes()
    wishes.put("t/app", (LARGE,), "sessions")
    wishes.put("t/app", (SMALL,), "pipelines")
    wishes.put("t/app", (), "sessions")
    assert wishes.of("t/app".__eq__) == (SMALL,)


def test_of_several_applications_in_the_order_of_their_names() -> None:
    wishes = PlannerWishes()
    wishes.put("t/b", (SMALL,), "sessions")
    wishes.put("t/a", (LARGE,), "sessions")
    wishes.put("u/c", (LARGE,), "sessions")
    assert wishes.of(lambda one: one.startswith("t/")) == (LARGE, SMALL)


def test_nothing_is_kept_of_who_is_gone() -> None:
    wishes = PlannerWishes()
    wishes.put("t/a", (LARGE,), "sessions")
    wishes.put("t/b", (SMALL,), "sessions")
    wishes.forget(lambda one: one == "t/a")
    assert wishes.of(lambda one: True) == (SMALL,)
