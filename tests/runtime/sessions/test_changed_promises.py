"""Another promise of a session that streams: kept from then on, or refused with the old one kept; never just waited
for by who does not want to wait.
"""

from contextlib import nullcontext

import pytest

from appliance.domain.errors import PromiseNotPossible
from appliance.domain.session import AccuracyPromise, LatencyPromise, Promise
from appliance.domain.states import SessionState
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import box_with, steady

CASES: list[tuple[Promise, float, int, bool]] = [
    (LatencyPromise(150.0, 5.0), 0.01, 0, True),
    (AccuracyPromise(0.3), 0.01, 0, True),
    (AccuracyPromise(0.3), 0.03, 3, True),
    (AccuracyPromise(0.3), 0.01, 3, False),
    (LatencyPromise(150.0, 5.0), 0.001, 0, False),
]
"""The promise before, the drop that is asked for, how many others there are, and whether it can be kept."""


@story
async def test_promise_change_is_not_refused_for_results_of_old_promise() -> None:
    """Results that come every 0.3 s are too old for a promise that has them come each 0.1 s: not a reason to wait."""
    for before, drop_max, others, is_possible in CASES:
        async with box_with({320: Cost(run_ms=40), 160: Cost(run_ms=20)}) as (fleet, gate):
            lives = [await fleet.join(gate, AccuracyPromise(0.08), fps=15, mbps=20) for _ in range(others)]
            live = await fleet.join(gate, before, fps=15, mbps=20)
            for one in (*lives, live):
                fleet.stream(one, steady(20), drop_rate=0.01)
            await fleet.pass_s(3)
            wanted = AccuracyPromise(drop_max)
            with nullcontext() if is_possible else pytest.raises(PromiseNotPossible):
                await fleet.sessions.change(live, promise=wanted)
            assert live.promise == (wanted if is_possible else before)
            assert live.state is SessionState.SERVED
            await fleet.pass_s(5)
            assert [one.state for one in (*lives, live)] == [SessionState.SERVED] * (others + 1)
