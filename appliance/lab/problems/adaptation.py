"""Kind `adaptation` (Jellyfish §IV, P1): which network on which worker, which client to which."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from appliance.lab.problems.base import (
    LatencyByBatch,
    Name,
    Positive,
    Question,
    Shape,
    known,
    refuse_duplicates,
    shaped,
)
from appliance.lab.registry import FAMILIES
from appliance.policies.adaptation import DEFAULT
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client, Network
from appliance.runtime.decisions.sessions import adaptation_answer_json

WORKERS_MAX = 256
NETWORKS_MAX = 256
CLIENTS_MAX = 4096


class _Network(Shape):
    name: Name
    accuracy: Annotated[float, Field(ge=0, le=1e6)]
    input_bytes: Annotated[float, Field(ge=0, le=1e12)]
    latency_ms: LatencyByBatch


class _Client(Shape):
    name: Name
    rate_rps: Annotated[float, Field(gt=0, le=1e6)]
    slo_ms: Positive
    bandwidth_bps: Positive
    transfer_ms_max: Positive | None = None


class _Problem(Shape):
    models: Annotated[list[_Network], Field(min_length=1, max_length=NETWORKS_MAX)]
    workers: Annotated[int, Field(ge=1, le=WORKERS_MAX)]
    clients: Annotated[list[_Client], Field(max_length=CLIENTS_MAX)]
    previous: Annotated[list[Name | None], Field(max_length=WORKERS_MAX)] | None = None
    seed: int = 0
    policy: str = DEFAULT
    prefetch_per_worker: Annotated[int, Field(ge=1, le=NETWORKS_MAX)] = 5
    time_limit_s: Annotated[float, Field(gt=0, le=3600)] = 60.0


def read(document: Mapping[str, Any]) -> Question[AdaptationPlan]:
    """The problem as a question to its policy. Raises: Malformed."""
    written = shaped(_Problem, document)
    known(written.policy, FAMILIES["adaptation"], "policy")
    refuse_duplicates((network.name for network in written.models), "models")
    refuse_duplicates((client.name for client in written.clients), "clients")
    names = [network.name for network in written.models]
    for index, name in enumerate(written.previous or ()):
        if name is not None:
            known(name, names, f"previous[{index}]")
    problem = _input(written)
    policy = FAMILIES["adaptation"][written.policy]()
    return Question(lambda: policy.plan(problem), adaptation_answer_json)


def _input(written: _Problem) -> AdaptationInput:
    return AdaptationInput(
        networks=tuple(
            Network(n.name, n.accuracy, n.input_bytes, {int(batch): ms for batch, ms in n.latency_ms.items()})
            for n in written.models
        ),
        workers=written.workers,
        clients=tuple(
            Client(c.name, c.rate_rps, c.slo_ms, c.bandwidth_bps, c.transfer_ms_max or math.inf)
            for c in written.clients
        ),
        previous=tuple(written.previous or ()),
        seed=written.seed,
        prefetch_per_worker=written.prefetch_per_worker,
        time_limit_s=written.time_limit_s,
    )
