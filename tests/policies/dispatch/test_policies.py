"""What each policy chooses, the paper's example, turns of tenants, and what comes back to the queue."""

from dataclasses import replace
from random import Random

import pytest

from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.dispatch.base import Decision, DispatchInput, Job, Processor, Tenant
from appliance.policies.dispatch.partition import Partition
from tests.policies.dispatch.chains import chain

CPU, GPU, NPU = Processor("CPU"), Processor("GPU"), Processor("NPU")


def whole_only(name: str, latency_ms: dict[str, float]) -> Partition:
    """A network of one operator."""
    return chain(name, latency_ms)


def decide(policy: str, problem: DispatchInput) -> Decision:
    decision = DISPATCH_POLICIES[policy]().plan(problem).decision
    assert decision is not None
    return decision


def test_least_slack_decides_the_papers_example_as_the_paper() -> None:
    """Figure 12: jobs of equal length, SLOs of 80 and 100: job 1, {A, B} on the NPU, with a slack of 70."""
    first = chain("abc", {"CPU": 20, "GPU": 9, "NPU": 4}, {"CPU": 10, "NPU": 3}, {"CPU": 3})
    second = chain("ef", {"CPU": 30, "NPU": 6}, {"CPU": 40, "GPU": 8, "NPU": 4})
    problem = DispatchInput(0, (CPU, GPU, NPU), (Job("1", first, 0, 80), Job("2", second, 0, 100)))

    decision = decide("least-slack", problem)

    assert (decision.job, decision.ops, decision.processor) == ("1", ("abc0", "abc1"), "NPU")
    assert (decision.expected_latency_ms, decision.slack_ms) == (10, 70)


def test_job_takes_another_processor_when_the_best_is_busy_for_long() -> None:
    """BA-13."""
    net = chain("net", {"CPU": 20, "GPU": 9, "NPU": 4}, {"CPU": 10, "NPU": 3}, {"CPU": 3})
    busy = DispatchInput(0, (CPU, GPU, replace(NPU, busy_until_ms=50)), (Job("1", net, 0, 80),))

    decision = decide("least-slack", busy)

    assert (decision.ops, decision.processor, decision.expected_latency_ms) == (("net0",), "GPU", 22)


def test_job_waits_for_a_busy_processor_that_still_ends_first() -> None:
    """The run begins when its processor is free."""
    net = chain("net", {"CPU": 100, "NPU": 5})
    problem = DispatchInput(10, (CPU, replace(NPU, busy_until_ms=30)), (Job("1", net, 0),))

    decision = decide("least-slack", problem)

    assert (decision.processor, decision.start_ms, decision.expected_latency_ms) == ("NPU", 30, 25)


def test_job_moves_only_when_worth_the_transfer_time() -> None:
    """A quicker processor for the second half is not worth a transfer that takes longer."""
    net = chain("net", {"CPU": 5}, {"CPU": 6, "NPU": 2})
    problem = DispatchInput(0, (CPU, NPU), (Job("1", net, 0),))

    assert decide("least-slack", problem).expected_latency_ms == 7
    assert decide("least-slack", replace(problem, transfer_ms=5)).expected_latency_ms == 11
    half_done = replace(problem, transfer_ms=3, jobs=(Job("1", net, 0, done=1, at="CPU"),))
    assert decide("least-slack", half_done).processor == "NPU"
    assert decide("least-slack", half_done).start_ms == 3


def test_job_late_anyway_is_reported_and_runs_last() -> None:
    net = whole_only("net", {"CPU": 20.0})
    late, good = Job("late", net, 0, 10), Job("good", net, 0, 100)
    plan = DISPATCH_POLICIES["least-slack"]().plan(DispatchInput(0, (CPU,), (late, good)))

    assert plan.violated == ("late",)
    assert plan.decision is not None
    assert plan.decision.job == "good"
    assert decide("least-slack", DispatchInput(0, (CPU,), (late,))).job == "late"


@pytest.mark.parametrize("policy", DISPATCH_POLICIES)
def test_decision_without_a_runnable_job_is_none(policy: str) -> None:
    """No jobs; a job whose processors are lost."""
    lost = Job("1", whole_only("net", {"NPU": 5.0}), 0, 10)

    for jobs in ((), (lost,)):
        plan = DISPATCH_POLICIES[policy]().plan(DispatchInput(0, (CPU,), jobs))
        assert (plan.decision, plan.violated) == (None, ())
        assert plan.reason


@pytest.mark.parametrize("policy", DISPATCH_POLICIES)
def test_fair_shares_come_before_slack(policy: str) -> None:
    """The tenant that has had least for its weight; of its jobs those of the highest priority."""
    net = whole_only("net", {"CPU": 5.0})
    jobs = (
        Job("hurried", net, 0, 20, tenant="a"),
        Job("patient", net, 1, 9000, tenant="b"),
        Job("first", net, 2, 9000, tenant="b", priority=1),
    )
    problem = DispatchInput(5, (CPU,), jobs, tenants=(Tenant("a", 1, 100), Tenant("b", 3, 200)))

    assert decide(policy, problem).job == "first"
    assert decide(policy, replace(problem, tenants=())).job == "first"  # a priority holds among all then
    assert decide(policy, replace(problem, tenants=(Tenant("a", 2, 100), Tenant("b", 1, 200)))).job == "hurried"


def test_earliest_finish_begins_with_the_longest_job() -> None:
    """A frame is done with its last result: by first come, first served it would take 12 ms longer."""
    short, long = whole_only("short", {"CPU": 8.0, "GPU": 8.0}), whole_only("long", {"CPU": 20.0, "GPU": 20.0})
    problem = DispatchInput(0, (CPU, GPU), (Job("a", short, 0), Job("b", short, 0), Job("c", long, 0)))

    assert decide("earliest-finish", problem).job == "c"
    assert decide("fifo", problem).job == "a"


def test_affinity_leaves_long_jobs_to_the_processor_that_runs_them_best() -> None:
    """A long job takes 100 ms on the CPU and 10 on the NPU, a short one 30 on either: while the NPU is busy for 95 ms
    the CPU takes a short job. The longest first, where it ends first, would begin a long one there."""
    long, short = whole_only("long", {"CPU": 100, "NPU": 10}), whole_only("short", {"CPU": 30, "NPU": 30})
    jobs = tuple(Job(f"{net.name}{number}", net, 0) for number in range(10) for net in (long, short))
    busy = DispatchInput(0, (CPU, replace(NPU, busy_until_ms=95)), jobs)

    decision = decide("affinity", busy)

    assert (decision.job, decision.processor) == ("short0", "CPU")
    assert decide("earliest-finish", busy).job == "long0"


def test_affinity_leaves_a_slow_processor_idle_for_the_last_job() -> None:
    """The last job would end later there than after a wait for the quick one."""
    last = (Job("last", whole_only("long", {"CPU": 100, "NPU": 10}), 0),)

    decision = decide("affinity", DispatchInput(0, (CPU, replace(NPU, busy_until_ms=50)), last))

    assert (decision.processor, decision.start_ms, decision.expected_latency_ms) == ("NPU", 50, 60)


def test_round_robin_gives_the_oldest_job_to_the_longest_free_processor() -> None:
    """The longest in the queue goes to whichever processor is free for longest, and its rest to the tail."""
    net = chain("net", {"CPU": 5, "GPU": 50}, {"CPU": 5})
    jobs = (Job("a", net, 0, queued_ms=9), Job("b", net, 3))
    problem = DispatchInput(10, (replace(CPU, busy_until_ms=8), replace(GPU, busy_until_ms=2)), jobs)

    decision = decide("round-robin", problem)

    assert (decision.job, decision.processor, decision.ops) == ("b", "GPU", ("net0",))
    assert not DISPATCH_POLICIES["round-robin"]().requeues_at_head
    assert DISPATCH_POLICIES["least-slack"]().requeues_at_head


def test_fixed_policy_leaves_its_processor_only_for_unsupported_units() -> None:
    """What its processor does not run goes to the quickest of the others, unit by unit."""
    net = chain("net", {"CPU": 9, "NPU": 1}, {"CPU": 9, "GPU": 5}, {"CPU": 9, "NPU": 1})
    busy = replace(NPU, busy_until_ms=500)
    ways = []
    for done in (0, 1, 3):
        decision = decide("fixed", DispatchInput(0, (CPU, GPU, busy), (Job("1", net, 0, done=done, fixed="NPU"),)))
        ways.append((decision.ops, decision.processor))

    assert ways == [(("net0",), "NPU"), (("net1",), "GPU"), (("net2",), "NPU")]
    assert decide("fixed", DispatchInput(0, (CPU, GPU), (Job("1", net, 0, fixed="NPU"),))).processor == "CPU"


@pytest.mark.parametrize("policy", DISPATCH_POLICIES)
def test_decision_depends_on_no_order_of_jobs_and_processors(policy: str) -> None:
    nets = [chain("x", {"CPU": 4, "GPU": 4}, {"CPU": 2}), chain("y", {"CPU": 6, "NPU": 6}), chain("z", {"GPU": 3})]
    random = Random(7)
    for _ in range(50):
        processors = [replace(p, busy_until_ms=random.choice([0, 3, 9])) for p in (CPU, GPU, NPU)]
        jobs = [Job(f"j{i}", random.choice(nets), random.choice([0, 1]), random.choice([10, 30])) for i in range(6)]
        plans = set()
        for _ in range(4):
            random.shuffle(jobs)
            random.shuffle(processors)
            plan = DISPATCH_POLICIES[policy]().plan(DispatchInput(2, tuple(processors), tuple(jobs)))
            plans.add((plan.decision, plan.violated))
        assert len(plans) == 1


@pytest.mark.parametrize("policy", DISPATCH_POLICIES)
def test_jobs_run_every_unit_exactly_once(policy: str) -> None:
    """Decision by decision, each unit of each job runs exactly once, and no processor runs two at a time."""
    nets = [chain("x", {"CPU": 4, "GPU": 4}, {"CPU": 2}, {"NPU": 1, "GPU": 7}), chain("y", {"CPU": 6, "NPU": 6})]
    jobs = {f"j{i}": Job(f"j{i}", nets[i % 2], float(i), 60.0 + i) for i in range(6)}
    free = {"CPU": 0.0, "GPU": 0.0, "NPU": 0.0}
    ran: list[str] = []
    for _ in range(100):
        if not jobs:
            break
        now_ms = min(free.values())
        problem = DispatchInput(now_ms, tuple(Processor(p, until) for p, until in free.items()), tuple(jobs.values()))
        decision = decide(policy, problem)
        job = jobs.pop(decision.job)
        assert not job.done & decision.units
        assert decision.start_ms >= free[decision.processor]
        subgraph = next(one for one in job.partition.subgraphs if one.units == decision.units)
        free[decision.processor] = decision.start_ms + subgraph.latency_ms[decision.processor]
        ran += [f"{job.name}:{op}" for op in decision.ops]
        left = replace(job, done=job.done | decision.units, at=decision.processor, queued_ms=now_ms)
        if left.done != left.partition.whole:
            jobs[left.name] = left
    assert not jobs
    assert len(ran) == len(set(ran)) == 3 * 3 + 3


def test_reason_states_long_times_in_plain_digits() -> None:
    slow = DispatchInput(0, (CPU,), (Job("1", whole_only("net", {"CPU": 19_960}), 0, 80_000),))
    reason = DISPATCH_POLICIES["least-slack"]().plan(slow).reason
    assert "19960 ms (60040 ms of slack)" in reason
