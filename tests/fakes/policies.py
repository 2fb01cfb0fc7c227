"""Policies that a test listens to."""

from collections.abc import Callable
from functools import partial
from typing import Any


def listen(policy: object, told: Callable[[Any], None]) -> None:
    """Have `told` called with each problem that a policy is asked from now on, before the policy answers. A policy that
    plans in steps tells of a problem each time that it begins with its steps.
    """
    name = "steps" if hasattr(policy, "steps") else "plan"
    setattr(policy, name, partial(_asked, told, getattr(policy, name)))


def _asked(told: Callable[[Any], None], answer: Callable[[Any], Any], problem: Any) -> Any:
    told(problem)
    return answer(problem)
