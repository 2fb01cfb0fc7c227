"""Which variants keep a latency SLO: one answer for the choice of a variant, for memory and for a tenant's warnings.

A variant keeps an SLO when twice its P99 fits: one run to wait for and its own (Jellyfish §IV-A eq. 5). One without a
measured latency is taken to keep it.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def keeps_slo(p99_ms: float | None, slo_ms: float | None) -> bool:
    """Whether a variant with this P99 keeps the SLO; without an SLO each does."""
    return _fits(p99_ms, slo_ms, runs=2)


def fits_alone(p99_ms: float | None, slo_ms: float | None) -> bool:
    """Whether it is in time at least where it need not wait."""
    return _fits(p99_ms, slo_ms, runs=1)


def preferred(items: Sequence[Item], p99_ms: Callable[[Item], float | None], slo_ms: float | None) -> list[Item]:
    """Those of `items` that go before the others because of the SLO.

    The ones that keep it; where none does, those that are in time where they need not wait; where none is, all: then
    the SLO decides nothing.
    """
    keeping = [item for item in items if keeps_slo(p99_ms(item), slo_ms)]
    return keeping or [item for item in items if fits_alone(p99_ms(item), slo_ms)] or list(items)


def _fits(p99_ms: float | None, slo_ms: float | None, *, runs: int) -> bool:
    return slo_ms is None or p99_ms is None or runs * p99_ms <= slo_ms
