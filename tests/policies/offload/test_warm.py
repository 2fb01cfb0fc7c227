"""The warm start: the previous plan goes on where nothing changed, and is packed anew where something did."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from appliance.policies.offload.base import Batch, Client, OffloadInput
from appliance.policies.offload.earliest_due import EarliestDue
from appliance.policies.offload.fleet import fleet_of
from appliance.policies.offload.ledger import opening
from appliance.policies.offload.warm import resumed
from tests.checkers.offload import check
from tests.instances.offload.rolling import Stay, carry_out, snapshot
from tests.instances.offload.scenes import waiting_scene


def _second_period() -> OffloadInput:
    """Twelve clients after 200 ms of their first plan, carried out as planned; nobody at the door."""
    first = waiting_scene(3, "depth", "5G", "mixed", clients=12)
    plan = EarliestDue().plan(first)
    stays = {c.name: Stay(c, 1e18) for c in first.waiting if c.name in plan.admitted}
    now = first.now_ms + 200.0
    batches = carry_out(plan.batches, stays, first.inference_ms, first.now_ms)
    running = [b for b in batches if b.start_ms < now]
    busy = max((b.start_ms + first.inference_ms[len(b.requests)] for b in running), default=0.0)
    clients = tuple(snapshot(stay, now) for stay in stays.values())
    return replace(first, now_ms=now, clients=clients, waiting=(), busy_until_ms=busy, previous=batches)


def _rest(problem: OffloadInput) -> list[Batch] | None:
    fleet = fleet_of(problem)
    found = resumed(fleet, opening(fleet), range(len(fleet.clients)))
    if found is None:
        return None
    names = [c.name for c in fleet.clients]
    return [Batch(start, None, tuple((names[i], f) for i, f in requests)) for start, _, requests in found[0]]


def test_previous_plan_goes_on_when_nothing_changed() -> None:
    """Every batch of it that has not begun is in the next plan, unmoved, and the plan keeps every SLA."""
    problem = _second_period()
    following = EarliestDue().plan(problem)
    to_come = [b for b in problem.previous if b.start_ms >= problem.now_ms]
    assert len(to_come) > 5
    assert list(following.batches[: len(to_come)]) == to_come
    assert len(following.batches) > len(to_come)
    assert check(problem, following).faults == ()


def test_resumed_batches_follow_the_promised_head() -> None:
    """Together they are the previous plan from now on."""
    problem = _second_period()
    head = opening(fleet_of(problem)).head
    rest = _rest(problem)
    assert rest
    to_come = [b for b in problem.previous if b.start_ms >= problem.now_ms]
    assert to_come[len(head) :] == rest


def test_client_that_left_ends_the_previous_plan() -> None:
    """Its batches would have holes; the plan made anew keeps every SLA."""
    problem = _second_period()
    fewer = replace(problem, clients=problem.clients[1:])
    assert _rest(fewer) is None
    assert check(fewer, EarliestDue().plan(fewer)).faults == ()


def test_slower_link_ends_the_previous_plan() -> None:
    """Frames that now come 8 ms later would miss their batches."""
    problem = _second_period()
    slow = replace(problem.clients[0], uplink_ms=problem.clients[0].uplink_ms + 8.0)
    changed = replace(problem, clients=(slow, *problem.clients[1:]))
    assert _rest(changed) is None
    assert check(changed, EarliestDue().plan(changed)).faults == ()


def test_tighter_sla_is_kept_although_the_previous_plan_fits() -> None:
    """The previous plan still fits, but would break the new SLA of one client: packed anew, or the client goes."""
    problem = _second_period()
    before = {s.name: s.expected_drop for s in EarliestDue().plan(problem).clients}
    name = max(before, key=lambda n: before[n])
    clients = tuple(replace(c, accuracy_slo=0.8 * before[name]) if c.name == name else c for c in problem.clients)
    changed = replace(problem, clients=clients)
    assert _rest(changed)
    assert check(changed, EarliestDue().plan(changed)).faults == ()


def test_client_missing_in_the_previous_plan_ends_that_plan() -> None:
    """The client's first frame came just now, and no plan knew when it captures: it is not put off until the previous
    plan ends, though what is shown before its first result counts nothing."""
    problem = _second_period()
    known = max(problem.clients, key=lambda client: client.accuracy_slo)
    now_frame = int(problem.now_ms * problem.fps / 1000.0)
    new = replace(
        known,
        name="new",
        last_frame=now_frame - 2,
        last_arrival_ms=problem.now_ms,
        last_result_frame=None,
        last_result_ms=None,
        arrivals=(),
    )
    changed = replace(problem, clients=(*problem.clients, new))
    assert _rest(changed), "it would fit in"
    plan = EarliestDue().plan(changed)
    (own,) = (one for one in plan.clients if one.name == "new")
    assert own.frames[0] - now_frame < 0.5 * problem.fps
    assert check(changed, plan).faults == ()


@pytest.mark.parametrize(
    ("horizon_ms", "inference_ms", "goes_on"),
    [(31.0, {1: 5.0}, True), (30.0, {1: 5.0}, False), (31.0, {2: 5.0}, False)],
)
def test_previous_plan_goes_on_only_with_runnable_batches_in_the_horizon(
    horizon_ms: float, inference_ms: Mapping[int, float], goes_on: bool
) -> None:
    """At 100 ms a batch of one is planned for 130 ms: the plan does not go on if its horizon ends then, nor where a
    single request cannot run."""
    batch = Batch(130.0, None, (("a", 120),))
    client = Client("a", 0.01, 0.1, 0.0, 10.0)
    problem = OffloadInput(1000.0, 100.0, horizon_ms, inference_ms, (client,), previous=(batch,))
    assert _rest(problem) == ([batch] if goes_on else None)
