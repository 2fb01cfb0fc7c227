"""Plans of pipelines and sessions."""

from typing import Protocol, TypeVar

P_co = TypeVar("P_co", covariant=True)


class Planned(Protocol[P_co]):
    """A pipeline or a session, with a plan or without."""

    @property
    def plan(self) -> P_co | None: ...


def plan_of(live: Planned[P_co]) -> P_co:
    """Return its plan. Raises: AssertionError where it has none."""
    assert live.plan is not None
    return live.plan
