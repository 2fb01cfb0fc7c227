"""What pipelines and sessions are planned with."""

from typing import Protocol, TypeVar

P_co = TypeVar("P_co", covariant=True)


class Planned(Protocol[P_co]):
    """A pipeline or a session."""

    @property
    def plan(self) -> P_co | None: ...


def plan_of(live: Planned[P_co]) -> P_co:
    """Its plan, which there has to be."""
    assert live.plan is not None
    return live.plan
