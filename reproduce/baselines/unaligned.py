"""Our own planner without what aligns it with the devices: the ablations of Jellyfish's evaluation (§VI-D, JF-29).

`StaticBudget`: a share of the SLO is the compute budget, whatever the link; what pictures the devices send is their
own affair. `OnePicture`: devices send pictures of one size, and the planner knows what they take.
"""

from dataclasses import replace

from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.exchange import PairwiseExchange
from appliance.policies.adaptation.zoo import by_size

_UNLIMITED_BPS = 1e15
"""A link on which nothing takes any time."""


class StaticBudget:
    """Our planner as for links that take no time, and SLOs that are less by what they are given."""

    def __init__(self, compute_share: float) -> None:
        self._share = compute_share

    def plan(self, problem: AdaptationInput) -> AdaptationPlan:
        clients = tuple(
            replace(one, slo_ms=self._share * one.slo_ms, bandwidth_bps=_UNLIMITED_BPS, transfer_ms_max=float("inf"))
            for one in problem.clients
        )
        return PairwiseExchange().plan(replace(problem, clients=clients))


class OnePicture:
    """Our planner with pictures that take the same for all networks: what the middle one's do, the smaller one of
    two.
    """

    def plan(self, problem: AdaptationInput) -> AdaptationPlan:
        ordered = by_size(problem.networks)
        size = ordered[(len(ordered) - 1) // 2].input_bytes
        networks = tuple(replace(one, input_bytes=size) for one in ordered)
        clients = tuple(replace(one, transfer_ms_max=float("inf")) for one in problem.clients)
        return PairwiseExchange().plan(replace(problem, networks=networks, clients=clients))
