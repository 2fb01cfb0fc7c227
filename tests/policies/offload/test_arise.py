"""How often ARISE has devices send, by cases that are worked out by hand."""

from itertools import pairwise

import pytest

from appliance.policies.offload.arise import Arise
from appliance.policies.offload.base import Client, OffloadInput

FPS = 30.0
NOW_MS = 10_000.0
RUNS_MS = {1: 10.0, 2: 13.0, 3: 16.0, 4: 19.0}


def _clients(count: int, slo: float, age_ms: float) -> tuple[Client, ...]:
    """That show a result of a frame captured 67 ms before it came, so long ago."""
    frame = int((NOW_MS - age_ms) * FPS / 1000.0) - 2
    sent = (frame, 1000.0 * frame / FPS + 20.0)
    return tuple(Client(f"c{i}", 0.004, slo, 20.0, 5.0, *sent, frame, NOW_MS - age_ms) for i in range(count))


@pytest.mark.parametrize(("slo", "interval"), [(0.05, 19), (0.03, 12)])
def test_frames_of_a_fresh_client_are_its_interval_apart(slo: float, interval: int) -> None:
    """A frame takes 20 + 19 + 5 ms in batches of four: 2 frames. In the reference setup 20 + 10 + 5 ms are 2 frames,
    too, beside which 0.05 allows 0.05 / 0.004 = 12.5 more, 14.5 in all. Shown for n frames it is 2 + (n - 1) / 2 on
    average, so n is 2 * 12.5 + 1 = 26, of which three quarters are 19; and 0.03 allows 7.5 more: 16, and 12.
    """
    waiting = tuple(Client(f"c{i}", 0.004, slo, 20.0, 5.0) for i in range(3))
    plan = Arise().plan(OffloadInput(FPS, NOW_MS, 1000.0, RUNS_MS, waiting=waiting))
    assert [client.interval for client in plan.clients] == [interval] * 3
    for client in plan.clients:
        assert [after - before for before, after in pairwise(client.frames)] in ([interval], [interval] * 2)


@pytest.mark.parametrize("age_ms", [1500.0, 2000.0, 2500.0, 3000.0])
@pytest.mark.parametrize("slo", [0.05, 0.04, 0.03])
def test_frames_after_a_stall_are_the_stated_interval_apart(slo: float, age_ms: float) -> None:
    """What is shown is old: more results have to make that good, evenly, and no more of them than that needs."""
    plan = Arise().plan(OffloadInput(FPS, NOW_MS, 1000.0, RUNS_MS, clients=_clients(3, slo, age_ms)))
    for client in plan.clients:
        gaps = [after - before for before, after in pairwise(client.frames)]
        assert max(gaps) - min(gaps) <= 1
        assert all(abs(gap - client.interval) <= 1 for gap in gaps)


def test_frames_after_a_stall_are_no_more_than_the_sla_needs() -> None:
    """A result that is 3 s old, which 0.05 bears for the time until the next one: not every frame has to be sent."""
    plan = Arise().plan(OffloadInput(FPS, NOW_MS, 1000.0, RUNS_MS, clients=_clients(3, 0.05, 3000.0)))
    assert [client.interval for client in plan.clients] == [6] * 3
