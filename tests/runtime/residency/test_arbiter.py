"""Room that is asked for in builds and answered about applications."""

from appliance.runtime.memory.room import ResidentBuild, RoomProblem
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.at_work import engine


@story
async def test_eviction_plan_keeps_smaller_variant_that_is_already_resident() -> None:
    """While the large variant came a request loaded the small one: the large one leaves for a build of another
    application, the small one is neither loaded again nor lost.
    """
    bench = engine({"large": Cost(60), "small": Cost(20)}, eviction="expected-utility")
    bench.add({"newcomer": Cost(70)}, name="other")
    large, small = bench.build("large"), bench.build("small")
    resident = (ResidentBuild(large, 60, 1, False), ResidentBuild(small, 20, 0, False))
    plan = bench.core.arbiter.plan(RoomProblem(5, bench.build("newcomer", "t/other"), 70, 20, resident))
    assert (plan.sufficient, plan.victims, plan.replacements) == (True, (large,), ())
