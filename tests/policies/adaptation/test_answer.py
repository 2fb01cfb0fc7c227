"""From what a search found to a plan."""

from dataclasses import replace

import pytest

from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, Client, Network
from appliance.policies.adaptation.mapping import Mapped

NETWORK = Network("n", 0.5, 0.0, {1: 50.0})
ONE, OTHER = (Client(name, 10.0, 200.0, 1e9) for name in ("one", "other"))
MAPPED = (Mapped(NETWORK, 1, (ONE,)), Mapped(NETWORK, 1, (OTHER,)))


def test_plan_of_more_instances_than_workers_is_refused() -> None:
    """A search that found two instances for one worker is wrong; for two they are a plan, of 0.5 x 20 in all."""
    with pytest.raises(ValueError, match="2 instances for 1 workers"):
        assemble(AdaptationInput((NETWORK,), 1, (ONE, OTHER)), MAPPED, "test")
    plan = assemble(AdaptationInput((NETWORK,), 2, (ONE, OTHER)), MAPPED, "test")
    assert [(one.worker, one.clients) for one in plan.workers] == [(0, ("one",)), (1, ("other",))]
    alone = assemble(AdaptationInput((NETWORK,), 1, (ONE,)), MAPPED[:1], "test")
    assert alone.reason == "the device is served. Planned by test"
    short = assemble(AdaptationInput((NETWORK,), 1, (ONE, replace(OTHER, rate_rps=15.0))), MAPPED[:1], "test")
    why = "for 1 of them the workers have no room (worker capacity)"
    assert short.reason == f"1 of 2 devices is not served: {why}. Planned by test"
    assert (plan.objective, plan.reason) == (10.0, "all 2 devices are served. Planned by test")
