"""What is promised stays, whatever the policy and whoever asks."""

import pytest

from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.residency.base import PROMISED, ApplicationState, Option, ResidencyProblem, Wish

LARGE, SMALL = Option("large", 60, 60, 90.0, 1000), Option("small", 20, 20, 80.0, 500)


def asked(need: int, promised: str) -> ResidencyProblem:
    """A request of an application that has nothing in memory; another one has the larger of its variants, and one of
    them is promised."""
    wishes = (Wish("large", 10**12, 2), Wish(promised, 10**12, PROMISED))
    holder = ApplicationState("holder", (LARGE, SMALL), "large", wishes=wishes)
    asker = ApplicationState("asker", (Option("v", need, need, 90.0, 1000),), None)
    return ResidencyProblem(10**9, 100, 0, 0, (asker, holder), "asker")


@pytest.mark.parametrize("name", sorted(EVICTION_POLICIES))
def test_promised_variant_stays_when_another_application_asks(name: str) -> None:
    plan = EVICTION_POLICIES[name]().plan(asked(70, "large"))
    assert (plan.outcome, plan.changes) == ("failed", ())


@pytest.mark.parametrize("name", sorted(EVICTION_POLICIES))
@pytest.mark.parametrize(("need", "fits"), [(70, True), (90, False)])
def test_application_keeps_promised_variant_at_the_least(name: str, need: int, fits: bool) -> None:
    """It may fall to that from a larger one, where the policy replaces variants."""
    plan = EVICTION_POLICIES[name]().plan(asked(need, "small"))
    after = [change.after for change in plan.changes if change.application == "holder"]
    assert after in ([], ["small"])
    if not fits:
        assert (plan.outcome, plan.changes) == ("failed", ())
    if name == "expected-utility" and fits:
        assert after == ["small"]
