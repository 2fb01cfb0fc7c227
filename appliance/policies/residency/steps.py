"""A plan that takes long is made in parts, and whoever asks does something else in between.

The plan is that of the problem as it was asked; what has changed meanwhile the asker must see to.
"""

from collections.abc import Callable, Generator

from appliance.policies.residency.base import EvictionPolicy, ResidencyPlan, ResidencyProblem

PART = 128
"""Applications that are looked at, or steps that are taken, before others get a turn: some tenths of a millisecond."""
Steps = Generator[None, None, ResidencyPlan]
"""Stops after each part, some tenths of a millisecond, and returns the plan."""


def in_steps(policy: EvictionPolicy, problem: ResidencyProblem) -> Steps:
    """A policy's plan in as many parts as it makes: a policy that knows how has `steps`, which answer what `plan`
    does.
    """
    steps: Callable[[ResidencyProblem], Steps] | None = getattr(policy, "steps", None)
    return policy.plan(problem) if steps is None else (yield from steps(problem))


def at_once(steps: Steps) -> ResidencyPlan:
    """The plan without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            plan: ResidencyPlan = end.value
            return plan
