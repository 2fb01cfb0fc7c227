"""A plan that takes long is made in parts, and whoever asks does something else in between.

The plan is that of the problem as it was asked; what has changed meanwhile the asker must see to.
"""

from collections.abc import Generator
from typing import Protocol, runtime_checkable

from appliance.policies.residency.base import EvictionPolicy, ResidencyPlan, ResidencyProblem

Steps = Generator[None, None, ResidencyPlan]
"""Stops after each part, some tenths of a millisecond, and returns the plan."""


@runtime_checkable
class InSteps(Protocol):
    """An eviction policy that knows how."""

    def steps(self, problem: ResidencyProblem) -> Steps:
        """What `plan` answers."""
        ...


def in_steps(policy: EvictionPolicy, problem: ResidencyProblem) -> Steps:
    """A policy's plan in as many parts as it makes."""
    if isinstance(policy, InSteps):
        return (yield from policy.steps(problem))
    return policy.plan(problem)


def at_once(steps: Steps) -> ResidencyPlan:
    """The plan without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            plan: ResidencyPlan = end.value
            return plan
