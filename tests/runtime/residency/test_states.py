"""What is kept by change is what would be found anew: after every event, in stories drawn at random."""

from dataclasses import dataclass, fields

from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import Quota
from appliance.domain.errors import ApplianceError
from appliance.policies.residency.base import Intent, Wish
from appliance.policies.residency.expected_utility import ExpectedUtility
from appliance.runtime.memory.overview import Overview
from appliance.runtime.residency.arbiter import EvictionArbiter
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.fakes.sinks import Decisions
from tests.harness.lanes import examples

NAMES = "abcd"


@dataclass(frozen=True)
class Step:
    """One thing that happens, and how long nothing else does after it."""

    do: str
    name: str
    size: int
    pause_ms: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["ask", "ask", "ask", "unload", "resize", "wish", "leave out", "take in", "change", "measure"]),
        st.sampled_from(NAMES),
        st.integers(10, 120),
        st.sampled_from([0, 1, 15, 400, 3000]),
    ),
    max_size=25,
)


class Story:
    """A box of four applications, two of which have three variants and sleep, and its two arbiters: the one that keeps
    what it knows, and one made for each question.
    """

    def __init__(self, has_quotas: bool) -> None:
        self.bench = EngineBench(100)
        for tenant, name in zip("ttuu", NAMES, strict=True):
            quota = Quota(memory_guarantee_bytes=15) if has_quotas and tenant == "u" else None
            can_sleep = name in "bd"
            variants = {
                f"v{size}": Cost(size, size + 3, load_ms=size, asleep_bytes=2 if can_sleep else None, wake_ms=1)
                for size in ((40, 25, 10) if can_sleep else (30, 12))
            }
            self.bench.add(variants, name=name, tenant=tenant, quota=quota)

    def application(self, name: str) -> str:
        return f"{'t' if name in 'ab' else 'u'}/{name}"

    async def do(self, step: Step) -> None:
        """The step, and its pause."""
        bench, application = self.bench, self.application(step.name)
        try:
            if step.do == "ask":
                await bench.infer(1, application, tenant=application[0], within_ms=500)
            elif step.do == "unload":
                await bench.memory.unload(bench.build("v10" if step.name in "bd" else "v12", application))
            elif step.do == "resize":
                bench.memory.resize(step.size)
            elif step.do == "wish":
                until_ns = bench.clock.now_ns() + 10**9
                names = ("v25", "v40", "v10") if step.name in "bd" else ("v30", "v12")
                used, *near = names if step.size % 2 else names[::-1]
                wishes = [Wish(used, until_ns, step.size % 3)]
                wishes += [Wish(name, until_ns, 0, distance) for distance, name in enumerate(near, 1)]
                wishes += [Wish(name, until_ns, is_substitute=True) for name in near[: step.size % 4]]
                bench.core.residency.wish(application, tuple(wishes) if step.size % 5 else ())
            elif step.do == "leave out":
                bench.core.residency.leave_out(application)
            elif step.do == "take in":
                bench.core.residency.take_in(application)
            elif step.do == "change":
                bench.add({"v9": Cost(9)}, name="other" + step.name)
            elif step.do == "measure":
                bench.core.groups.loaded(bench.catalogue.entry(application).order[0].build_id, step.size**4)
        except ApplianceError:
            pass  # it found no room, or was late: that is a change, too
        await bench.pause(step.pause_ms)

    def check(self) -> None:
        """Every question is the same as to an arbiter that knows nothing yet."""
        core, memory = self.bench.core, self.bench.memory
        kept, groups, enactor = core.arbiter, core.groups, core.residency.enactor
        for request in (None, *(self.application(name) for name in NAMES)):
            if request is not None and groups.of_application(request) is None:
                continue
            intents: tuple[Intent, ...] = ("rebalance",) if request is None else ("serve", "procure")
            for intent in intents:
                asked = (memory.budget_bytes, memory.residents(), self.bench.clock.now_ns(), request, intent)
                question = kept.problem(*asked, asleep=memory.asleep())
                fresh = EvictionArbiter(
                    groups,
                    core.expectations,
                    core.shares,
                    ExpectedUtility(),
                    Decisions(),
                    "expected-utility",
                    beside=kept.beside,
                )
                for group in groups.all():
                    if enactor.is_changing(group.name):
                        fresh.begin_change(group.name)
                    for build_id in filter(enactor.is_paused, group.builds):
                        fresh.go_without(build_id)
                anew = fresh.problem(*asked, asleep=memory.asleep())
                for field in fields(question):
                    assert getattr(question, field.name) == getattr(anew, field.name), field.name
        ledger = memory._ledger
        overview = Overview(ledger.get, ledger.kept_when_gone)
        overview.changed.update(memory.known_builds())
        for build in ledger.all():
            overview.follow(None, build.successor_of)
        assert (memory.residents(), memory.asleep()) == (overview.residents(), overview.asleep())
        assert (ledger.leavers(), memory.awake()) == (overview.leavers(), overview.awake())
        assert memory.awake() == {build.build_id for build in ledger.all() if memory.is_resident(build.build_id)}
        assert ledger.asleep_bytes == sum(overview.kept().values())
        is_wanted = any(not memory.is_resident(g.servables[0].build_id) for g in groups.all())
        assert core.residency.is_better_wanted() is is_wanted
        floors = [g.options[-1].load_ns for g in groups.all()]
        assert groups.slowest_floor_ns() == max(floors, default=0)


@examples(gate=60)
@given(steps, st.booleans())
@story
async def test_residency_states_kept_equal_states_computed_anew(drawn: list[Step], has_quotas: bool) -> None:
    """Requests, unloads, another budget, wishes, new models, measurements, in any order."""
    told = Story(has_quotas)
    async with told.bench.working(residency=True):
        for step in drawn:
            await told.do(step)
            told.check()
