"""Shares of kept promises as lines for a person."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appliance.wire.history import PromiseHistoryShape, PromiseSpanShape

_SPANS = ("hour", "day", "month")
_DOWN_TOLD_S = 30
"""Least downtime that is shown."""
_ROUNDING = 1e-6
"""Added before rounding down, because the float product 0.57 times 10,000 is a little less than 5,700."""


def promise_lines(promises: "Sequence[PromiseHistoryShape]") -> Iterator[str]:
    """Yield the kept share of each promise in the last hour, day and month, with the counts of broken ones."""
    for one in promises:
        for place, span in enumerate(_SPANS):
            head = f"{one.of} kept" if place == 0 else ""
            yield f"  {head:<14}last {span:<6}{_told(getattr(one, span))}"


def _told(span: "PromiseSpanShape") -> str:
    counted = span.kept + span.late + span.refused + span.failed
    broken = [f"{count} {name}" for name in ("late", "refused", "failed") if (count := getattr(span, name))]
    share = "nothing was asked" if span.share is None else f"{percent(span.share)} of {counted}"
    down = [f"box down for {_length(span.down_s)}"] if span.down_s >= _DOWN_TOLD_S else []
    return ", ".join((share, *broken, *down))


def _length(seconds: int) -> str:
    return (
        f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
    )


def percent(share: float) -> str:
    """Return a share in percent, rounded down: 100 means that no promise was broken."""
    return f"{int(share * 10_000 + _ROUNDING) / 100:.2f} %"
