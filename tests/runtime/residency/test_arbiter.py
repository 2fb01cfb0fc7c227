"""Room that is asked for in builds and answered about applications."""

from appliance.policies.forecast.renewal import Renewal
from appliance.policies.residency.expected_utility import ExpectedUtility
from appliance.runtime.memory.room import ResidentBuild, RoomProblem
from appliance.runtime.residency.arbiter import EvictionArbiter
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.groups import VariantGroups
from appliance.runtime.residency.shares import Shares
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.fakes.sinks import Decisions


@story
async def test_eviction_plan_keeps_smaller_variant_that_is_already_resident() -> None:
    """While the large variant came a request loaded the small one: the large one leaves for a build of another
    application, the small one is neither loaded again nor lost.
    """
    bench = EngineBench(100)
    bench.add({"large": Cost(60), "small": Cost(20)}, name="both")
    bench.add({"newcomer": Cost(70)}, name="other")
    large, small, newcomer = (
        bench.build(v, f"t/{m}") for v, m in (("large", "both"), ("small", "both"), ("newcomer", "other"))
    )
    groups = VariantGroups(bench.catalogue)
    expectations = Expectations(lambda name: Renewal(), alpha=1.0, delta_ns=1, history_ns=1)
    room = EvictionArbiter(
        groups,
        expectations,
        Shares(bench.catalogue, groups, 100),
        ExpectedUtility(),
        Decisions(),
        "expected-utility",
    )
    resident = (ResidentBuild(large, 60, 1, False), ResidentBuild(small, 20, 0, False))
    plan = room.plan(RoomProblem(5, newcomer, 70, 20, resident))
    assert (plan.sufficient, plan.victims, plan.replacements) == (True, (large,), ())
