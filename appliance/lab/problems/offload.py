"""Kind `offload` (ARISE §4.4): which frames, in which batches."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from appliance.lab.problems.base import (
    LatencyByBatch,
    Malformed,
    Name,
    Question,
    Shape,
    known,
    refuse_duplicates,
    shaped,
)
from appliance.policies.offload import DEFAULT, OFFLOAD_POLICIES
from appliance.policies.offload.base import Batch, Client, OffloadInput, OffloadPlan, Variant
from appliance.runtime.decisions.sessions import offload_answer_json

CLIENTS_MAX = 4096
FRAMES_MAX = 20_000
"""Displayed frames within the horizon, and a bound on what a plan can hold."""
BATCHES_MAX = 20_000
"""Batches of the quickest size that fit into the horizon."""

Frame = Annotated[int, Field(ge=0, le=10**12)]
Instant = Annotated[float, Field(ge=0, le=1e12)]
Latency = Annotated[float, Field(ge=0, le=1e7)]


# JSON has no tuples: a pair comes as a list, its parts as strict as ever.
_Arrival = Annotated[tuple[Frame, Annotated[float, Field(ge=-1e12, le=1e12)]], Field(strict=False)]
_Request = Annotated[tuple[Name, Frame], Field(strict=False)]


class _Variant(Shape):
    name: Name
    accuracy_gap: Annotated[float, Field(ge=-1e6, le=1e6)]
    uplink_ms: Latency
    inference_ms: LatencyByBatch
    drop_rate: Annotated[float, Field(ge=0, le=1e6)] | None = None


class _Client(Shape):
    name: Name
    drop_rate: Annotated[float, Field(ge=0, le=1e6)]
    accuracy_slo: Annotated[float, Field(ge=0, le=1e6)]
    uplink_ms: Latency
    downlink_ms: Annotated[float, Field(ge=-1e7, le=1e7)]
    last_frame: Frame | None = None
    last_arrival_ms: Annotated[float, Field(ge=-1e12, le=1e12)] | None = None
    last_result_frame: Frame | None = None
    last_result_ms: Annotated[float, Field(ge=-1e12, le=1e12)] | None = None
    arrivals: Annotated[list[_Arrival], Field(max_length=4096)] | None = None
    variants: Annotated[list[_Variant], Field(max_length=64)] | None = None
    kept_free: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    reference_stride: Annotated[float, Field(ge=0, le=1e6)] | None = None


class _Batch(Shape):
    start_ms: Annotated[float, Field(ge=-1e12, le=1e12)]
    variant: Name | None = None
    requests: Annotated[list[_Request], Field(max_length=4096)]


class _Previous(Shape):
    batches: Annotated[list[_Batch], Field(max_length=BATCHES_MAX)] | None = None


class _Problem(Shape):
    fps: Annotated[float, Field(gt=0, le=10_000)]
    now_ms: Instant
    horizon_ms: Annotated[float, Field(gt=0, le=1e7)]
    busy_until_ms: Annotated[float, Field(ge=0, le=1e12)] | None = None
    grace: Annotated[float, Field(ge=0, le=10)] = 0.1
    inference_ms: LatencyByBatch
    clients: Annotated[list[_Client], Field(max_length=CLIENTS_MAX)]
    waiting: Annotated[list[_Client], Field(max_length=CLIENTS_MAX)] | None = None
    previous: _Previous | None = None
    policy: str = DEFAULT


def read(document: Mapping[str, Any]) -> Question[OffloadPlan]:
    """The problem as a question to its policy. Raises: Malformed."""
    written = shaped(_Problem, document)
    known(written.policy, OFFLOAD_POLICIES, "policy")
    waiting = written.waiting or []
    refuse_duplicates((client.name for client in written.clients), "clients")
    refuse_duplicates((client.name for client in waiting), "waiting")
    names = {client.name for client in written.clients}
    for index, client in enumerate(waiting):
        if client.name in names:
            raise Malformed(f"waiting[{index}].name", f"{client.name!r} is among the clients already")
    _refuse_absurd(written)
    for key, group in (("clients", written.clients), ("waiting", waiting)):
        for index, client in enumerate(group):
            _check_client(f"{key}[{index}]", client)
    problem = _input(written)
    policy = OFFLOAD_POLICIES[written.policy]()
    return Question(lambda: policy.plan(problem), offload_answer_json)


def _refuse_absurd(written: _Problem) -> None:
    if written.horizon_ms * written.fps > 1000.0 * FRAMES_MAX:
        raise Malformed("horizon_ms", f"must hold at most {FRAMES_MAX} frames")
    tables = [("inference_ms", written.inference_ms)]
    for client in (*written.clients, *(written.waiting or [])):
        tables += [("variants[].inference_ms", variant.inference_ms) for variant in client.variants or ()]
    for key, table in tables:
        if written.horizon_ms > BATCHES_MAX * min(table.values()):
            raise Malformed(key, f"more than {BATCHES_MAX} batches fit into the horizon")


def _check_client(key: str, client: _Client) -> None:
    """What a shape cannot say about one client."""
    for one, other in (("last_frame", "last_arrival_ms"), ("last_result_frame", "last_result_ms")):
        if getattr(client, one) is None and getattr(client, other) is not None:
            raise Malformed(f"{key}.{one}", f"is missing, while {other} is given")
    if client.last_result_frame is not None:
        if client.last_result_ms is None:
            raise Malformed(f"{key}.last_result_ms", "is missing, while last_result_frame is given")
        if client.last_frame is not None and client.last_result_frame > client.last_frame:
            raise Malformed(f"{key}.last_result_frame", "must be <= last_frame")
    if client.variants:
        refuse_duplicates((variant.name for variant in client.variants), f"{key}.variants")


def _input(written: _Problem) -> OffloadInput:
    previous = (written.previous.batches or []) if written.previous else []
    return OffloadInput(
        fps=written.fps,
        now_ms=written.now_ms,
        horizon_ms=written.horizon_ms,
        inference_ms=_table(written.inference_ms),
        clients=_clients(written.clients),
        waiting=_clients(written.waiting or []),
        busy_until_ms=written.busy_until_ms or 0.0,
        grace=written.grace,
        previous=tuple(Batch(b.start_ms, b.variant, tuple(b.requests)) for b in previous),
    )


def _table(latency_ms: Mapping[str, float]) -> dict[int, float]:
    return {int(batch): ms for batch, ms in latency_ms.items()}


def _clients(written: Sequence[_Client]) -> tuple[Client, ...]:
    return tuple(
        Client(
            name=c.name,
            drop_rate=c.drop_rate,
            accuracy_slo=c.accuracy_slo,
            uplink_ms=c.uplink_ms,
            downlink_ms=c.downlink_ms,
            last_frame=c.last_frame,
            last_arrival_ms=c.last_arrival_ms,
            last_result_frame=c.last_result_frame,
            last_result_ms=c.last_result_ms,
            arrivals=tuple(c.arrivals or ()),
            variants=tuple(
                Variant(v.name, v.accuracy_gap, v.uplink_ms, _table(v.inference_ms), v.drop_rate)
                for v in c.variants or ()
            ),
            kept_free=c.kept_free,
            reference_stride=c.reference_stride,
        )
        for c in written
    )
