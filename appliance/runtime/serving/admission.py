"""Who may come in: quotas, bounds, the deadline, and whether the tensors fit the variant.

Cheap refusals come before costly work.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.catalogue import Application, Late, Quota
from appliance.domain.errors import BadTensor, QuotaExceeded
from appliance.domain.request import Request, Tensors
from appliance.policies.limits.requests import CONCURRENT, RATE, AdmissionInput, refused_by
from appliance.runtime.servable import InputSlot, Servable

Described = tuple[str, "np.dtype[Any]", tuple[int, ...]]
"""Name, type and shape of an input whose data nobody has looked at yet."""
_FITTING_MAX = 64
"""Shapes of one input that are remembered."""


@dataclass(slots=True)
class _Bucket:
    """A token bucket that holds one second's worth of requests."""

    tokens: float
    at_ns: int


class Admission:
    """Counts what each tenant has under way and refuses what exceeds its quota."""

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self._timeout_ns = int(timeout_ms * NS_PER_MS)
        self._running: Counter[str] = Counter()
        self._buckets: dict[str, _Bucket] = {}

    def enter(self, tenant: str, quota: Quota) -> None:
        """Count a request in; every `enter` that returns is matched by a `leave`.

        Raises: QuotaExceeded.
        """
        if quota.concurrent_requests is not None or quota.requests_per_s is not None:
            self.check(tenant, quota)
            if quota.requests_per_s is not None:
                self._bucket(tenant, quota.requests_per_s).tokens -= 1
        self._running[tenant] += 1

    def enter_beside(self, tenant: str, quota: Quota) -> bool:
        """Count one more in of a call that is in already, where its tenant may have one more at once; whether it may.
        It is none of the rate. Matched by a `leave`.
        """
        if quota.concurrent_requests is not None and self._running[tenant] >= quota.concurrent_requests:
            return False
        self._running[tenant] += 1
        return True

    def check(self, tenant: str, quota: Quota) -> None:
        """Raises: QuotaExceeded when a request would not be let in now."""
        running, rate = self._running[tenant], quota.requests_per_s
        tokens = None if rate is None else self._bucket(tenant, rate).tokens
        refused = refused_by(AdmissionInput(running, quota.concurrent_requests, tokens))
        if refused == CONCURRENT:
            most = quota.concurrent_requests or 0
            raise QuotaExceeded(tenant=tenant, quota=CONCURRENT, limit=most, used=running, retry_after_s=1.0)
        if refused == RATE and rate is not None and tokens is not None:
            again_s = (1 - tokens) / rate
            raise QuotaExceeded(tenant=tenant, quota=RATE, limit=rate, left=tokens, retry_after_s=again_s)

    def running(self, tenant: str) -> int:
        """Those that have entered and not left."""
        return self._running[tenant]

    def leave(self, tenant: str) -> None:
        """Count a request out."""
        self._running[tenant] -= 1

    def set_deadline(self, request: Request, application: Application) -> None:
        """The request's own deadline, else that of its application; set once, here.

        What has passed since its arrival went into reading and decoding it.
        """
        request.decoded_ns = self._clock.now_ns() - request.arrival_ns
        request.runs_late = application.late is Late.RUN and not request.is_item
        if request.deadline_ns is None:
            request.deadline_ns = self.deadline_ns(request.arrival_ns, application)

    def deadline_ns(self, arrival_ns: int, application: Application) -> int:
        """Of a request that states none: arrival + SLO, else arrival + the default timeout."""
        slo_ms = application.latency_slo_ms
        return arrival_ns + (self._timeout_ns if slo_ms is None else int(slo_ms * NS_PER_MS))

    def _bucket(self, tenant: str, rate: float) -> _Bucket:
        """The tenant's bucket as it is filled now."""
        now_ns = self._clock.now_ns()
        size = max(1.0, rate)
        bucket = self._buckets.get(tenant)
        if bucket is None:
            bucket = self._buckets[tenant] = _Bucket(size, now_ns)
        bucket.tokens = min(size, bucket.tokens + (now_ns - bucket.at_ns) / NS_PER_S * rate)
        bucket.at_ns = now_ns
        return bucket


def check_tensors(inputs: Tensors, servable: Servable) -> None:
    """Names, types and shapes of the inputs against the variant's specification.

    Raises: BadTensor naming the tensor.
    """
    slots = servable.inputs
    for name, tensor in inputs.items():
        slot, shape = slots.get(name), tensor.shape
        is_known = slot is not None and (shape == slot.fixed or shape in slot.fitting)
        if slot is None or not is_known or tensor.dtype is not slot.dtype:
            check_input(name, tensor.dtype, shape, servable)
    if len(inputs) < len(slots):
        raise BadTensor(reason=f"missing input {', '.join(sorted(set(slots) - set(inputs)))}")


def check_input(name: str, dtype: "np.dtype[Any]", shape: tuple[int, ...], servable: Servable) -> None:
    """As `check_tensors`, of one input that may not be there yet. Raises: BadTensor naming it."""
    slot = servable.inputs.get(name)
    if slot is None:
        raise BadTensor(reason=f"there is no input {name!r}; this variant has {', '.join(sorted(servable.inputs))}")
    if slot.dtype is not None and dtype != slot.dtype:
        raise BadTensor(reason=f"input {name!r} is {dtype}, the variant takes {slot.spec.datatype}")
    if shape != slot.fixed and not _shape_fits(shape, slot):
        raise BadTensor(reason=f"input {name!r} {_misfit(shape, slot)}")


def check_outputs(names: Sequence[str] | None, servable: Servable) -> None:
    """Raises: BadTensor naming a requested output that the variant does not have."""
    for name in names or ():
        if name not in servable.output_names:
            raise BadTensor(
                reason=f"there is no output {name!r}; this variant has {', '.join(sorted(servable.output_names))}"
            )


def _shape_fits(shape: tuple[int, ...], slot: InputSlot) -> bool:
    if len(shape) != len(slot.spec.shape):
        return False
    # A plain loop: a generator costs three times as much here.
    for have, want, most in zip(shape, slot.spec.shape, slot.most, strict=True):
        if want not in (have, -1) or not 0 < have <= most:
            return False
    if len(slot.fitting) < _FITTING_MAX:
        slot.fitting.add(shape)
    return True


def _misfit(shape: tuple[int, ...], slot: InputSlot) -> str:
    """What is wrong with a shape that does not fit."""
    wanted = list(slot.spec.shape)
    is_of_it = len(shape) == len(wanted) and all(want in (have, -1) for have, want in zip(shape, wanted, strict=True))
    if not is_of_it:
        return f"has shape {list(shape)}, the variant takes {wanted} (-1 = any)"
    if 0 in shape:
        return f"has shape {list(shape)}: no axis may be empty"
    return (
        f"has shape {list(shape)}, the variant takes at most {list(slot.most)}; for more, state `shape_max` in the "
        "metadata of the upload"
    )
