"""From what a policy decided to a plan: batches with the head first, what each client is told, and why."""

from collections.abc import Sequence

from appliance.policies.offload.admission import Decision
from appliance.policies.offload.base import Batch, OffloadPlan, Served
from appliance.policies.offload.fleet import Fleet
from appliance.policies.offload.verify import drop_of


def assemble(fleet: Fleet, decision: Decision, interval: Sequence[int], batch: Sequence[int], how: str) -> OffloadPlan:
    """The plan of a decision; `interval` and `batch` by client are what it was built around."""
    names = [client.name for client in fleet.clients]
    variants = [network.name for network in fleet.networks]
    members = sorted(decision.verified.members)
    frames: list[list[int]] = [[] for _ in names]
    batches = []
    for start, network, requests in (*decision.state.head, *decision.verified.slots):
        batches.append(Batch(start, variants[network], tuple([(names[i], frame) for i, frame in requests])))
        for i, frame in requests:
            frames[i].append(frame)
    strides, of = decision.verified.strides, fleet.network
    served = [
        Served(names[i], interval[i], batch[i], variants[of[i]], tuple(frames[i]), drop_of(fleet, i, strides[i]))
        for i in members
    ]
    is_member = set(members)
    admitted = tuple([names[i] for i in members if not fleet.is_served[i]])
    removed = tuple([name for i, name in enumerate(names) if fleet.is_served[i] and i not in is_member])
    return OffloadPlan(
        tuple(served), admitted, removed, tuple(batches), _reason(fleet, decision, admitted, removed, how)
    )


def _reason(fleet: Fleet, decision: Decision, admitted: Sequence[str], removed: Sequence[str], how: str) -> str:
    members = len(decision.verified.members)
    waiting = len(fleet.clients) - sum(fleet.is_served) - len(admitted)
    said = f"{members} {'device is' if members == 1 else 'devices are'} served, {len(admitted)} of them from now on"
    if removed:
        said += f"; {len(removed)} served no more, for the promises of all cannot be kept"
    if waiting:
        said += f"; {waiting} still waiting, for with the next one a promise would break"
    return f"{said}. Planned by {how}, {decision.trials} {'plan' if decision.trials == 1 else 'plans'} tried"
