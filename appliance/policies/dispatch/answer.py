"""From a chosen run to a plan that says why."""

from appliance.policies.dispatch.base import FOREVER, Decision, DispatchInput, DispatchPlan, Job
from appliance.policies.dispatch.outlook import Expected
from appliance.policies.dispatch.turns import Turn


def decided(problem: DispatchInput, job: Job, expected: Expected, turn: Turn, why: str) -> DispatchPlan:
    """The plan to go on with `job` as expected; `why` it was chosen."""
    latency_ms, slack_ms = expected.finish_ms - problem.now_ms, job.deadline_ms - expected.finish_ms
    slack = "no deadline" if slack_ms == FOREVER else f"{_told(slack_ms)} ms of slack"
    decision = Decision(
        job.name,
        expected.first.units,
        expected.first.ops,
        expected.processor,
        expected.start_ms,
        latency_ms,
        slack_ms,
    )
    reason = f"{why}: {job.name!r} can be done in {_told(latency_ms)} ms ({slack}), beginning on {expected.processor!r}"
    return DispatchPlan(decision, turn.violated, reason)


def _told(milliseconds: float) -> str:
    """Four digits, and never a power of ten."""
    return f"{milliseconds:.4g}" if abs(milliseconds) < 1e4 else f"{milliseconds:.0f}"
