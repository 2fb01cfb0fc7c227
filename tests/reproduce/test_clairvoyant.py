"""The clairvoyant's own plan: carried out to the end, and between every policy and the bound."""

from random import Random

import pytest

from appliance.lab.clairvoyant.bound import bound
from appliance.lab.clairvoyant.chains import Ask, Choice, Schedule
from appliance.lab.clairvoyant.plan import SLACK_NS, Reached, plan, reached
from tests.lab.every_plan import S
from tests.reproduce.schedules import LARGE, SMALL, schedule, small_schedule


def carried_out(problem: Schedule, *, loads_parallel_max: int = 2, workers: int = 1) -> Reached:
    return reached(problem, loads_parallel_max=loads_parallel_max, workers=workers)


def test_clairvoyant_keeps_a_variant_while_its_requests_have_room() -> None:
    (stay,) = plan(schedule(300, (10, 0), (20, 0)))
    assert (stay.model, stay.rank, stay.load_ns, stay.asks) == (0, 0, 7 * S - SLACK_NS, (0, 1))


def test_clairvoyant_gives_memory_to_another_model_between_requests() -> None:
    stays = plan(schedule(300, (10, 0), (20, 1), (30, 0), models=2))
    assert [(stay.model, stay.asks) for stay in stays] == [(0, (0,)), (1, (1,)), (0, (2,))]
    assert carried_out(schedule(300, (10, 0), (20, 1), (30, 0), models=2)) == Reached(0.0, 90.0)


def test_clairvoyant_does_not_serve_a_request_that_cannot_be_warm() -> None:
    assert carried_out(schedule(300, (0.5, 0), (10, 0))) == Reached(0.5, 45.0)


def test_clairvoyant_load_that_waits_for_another_load_is_late() -> None:
    both = schedule(600, (4, 0), (4, 1), models=2)
    assert carried_out(both) == Reached(0.0, 90.0)
    assert carried_out(both, loads_parallel_max=1) == Reached(0.5, 90.0)


def test_clairvoyant_run_waits_for_the_worker() -> None:
    """Two requests at once and one worker: the second answer comes when its caller has gone."""
    busy = Choice(100, 70.0, S, run_ns=S)
    once = Schedule(200, [[busy], [busy]], [Ask(10 * S, 0, S), Ask(10 * S, 1, S)])
    assert carried_out(once) == Reached(0.0, 35.0)
    assert carried_out(once, workers=2) == Reached(0.0, 70.0)


def test_clairvoyant_load_needs_room_for_its_peak() -> None:
    peaked = Choice(300, 90.0, 3 * S, peak_bytes=301)
    assert carried_out(Schedule(300, [[peaked, SMALL]], [Ask(10 * S, 0, S)])).utility == 70
    assert carried_out(Schedule(301, [[peaked, LARGE]], [Ask(10 * S, 0, S)])).utility == 90


@pytest.mark.parametrize("seed", range(30))
def test_clairvoyant_plan_never_exceeds_the_bound(seed: int) -> None:
    problem = small_schedule(Random(f"carried out/{seed}"))
    done = carried_out(problem)
    best = bound(problem, cold_max=done.cold * len(problem.asks))
    assert done.cold * len(problem.asks) >= best.cold_least
    assert done.utility <= best.utility_most


def test_clairvoyant_without_arrivals_is_refused() -> None:
    with pytest.raises(ValueError, match="no arrivals"):
        carried_out(schedule(100))
