"""Requests that are kept for trials of unverified variants: which, how many, and for how long.

They stay in memory, with a bound on their number and their bytes for each tenant. They are forgotten after a few
seconds, used or not. Of many requests a few a second are kept: the next request each time a pause is over, whatever it
asks.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.catalogue import Variant
from appliance.domain.request import Request, Tensors
from appliance.domain.trial import TrialRules
from appliance.runtime.catalogue import Entry
from appliance.tasks.base import Media
from appliance.tasks.trial_sample import MediaAsked, TensorsAsked, TrialSample

FRESH_NS = 10 * NS_PER_S
"""Nanoseconds for which a sample is kept."""
_EVERY_NS = 250 * NS_PER_MS
_WATCH_EVERY_NS = 10 * NS_PER_S
"""Nanoseconds from one kept request to the next for a watched variant that agrees; for a variant on trial, or watched
closely, `_EVERY_NS`.
"""
_RULES = TrialRules()


@dataclass(frozen=True, slots=True)
class SampleBounds:
    """Bounds on the samples that are kept; with 0 samples, none are kept."""

    samples_max: int = 0
    """Samples of a tenant at most."""
    bytes_max: int = 0
    """Bytes of a tenant's samples at most."""
    bytes_total_max: int = 0


class TrialSamples:
    """Requests that are kept for trials. Event-loop thread only."""

    def __init__(self, clock: Clock, bounds: SampleBounds) -> None:
        self._clock = clock
        self._bounds = bounds
        self._kept: dict[str, deque[TrialSample]] = {}
        """Samples by tenant, the oldest first; tenants that had a turn last stand last."""
        self._not_before_ns: dict[str, int] = {}
        """Clock in nanoseconds from which the next request is kept, by id of the variant on trial or watched."""
        self._some = asyncio.Event()

    def offer_tensors(self, request: Request, entry: Entry, answered: Variant, outputs: Mapping[str, Any]) -> None:
        """Keep a copy of a request for tensors where its answer is wanted for a trial.

        The inputs have shapes that the variant that answered takes. The other variant must take the same shapes.
        """
        beside = entry.trials[answered.id]
        is_whole = not request.is_read and not entry.model.task.state and not entry.model.task.constants
        if is_whole and beside.inputs == answered.inputs and self._is_due(request.tenant, entry, answered, beside):
            asked = TensorsAsked(request.inputs, outputs)
            if self._has_room(request.tenant, asked.size_bytes):
                copied = TensorsAsked(_copied(request.inputs), _copied(outputs))
                self._keep(request.tenant, entry, answered, beside, copied)

    def offer_media(self, tenant: str, entry: Entry, answered: Variant, media: Media, body: Mapping[str, Any]) -> None:
        """Keep media and what a task read in the outputs, where the answer is wanted for a trial.

        Neither is copied, because no code changes them.
        """
        beside = entry.trials[answered.id]
        if body and self._is_due(tenant, entry, answered, beside):
            asked = MediaAsked(media, body)
            if self._has_room(tenant, asked.size_bytes):
                self._keep(tenant, entry, answered, beside, asked)

    async def some(self) -> None:
        """Return when there is a sample."""
        await self._some.wait()

    def take(self) -> list[TrialSample]:
        """Return the samples of one variant, of the tenant whose turn it is, and keep them no longer.

        Return none where all are old.
        """
        self._forget_old()
        if not self._kept:
            return []
        tenant = next(iter(self._kept))
        kept = self._kept.pop(tenant)
        pair = kept[0].answered, kept[0].beside.id
        if rest := deque(one for one in kept if (one.answered, one.beside.id) != pair):
            self._kept[tenant] = rest  # after those of others
        self._settle()
        return [one for one in kept if (one.answered, one.beside.id) == pair]

    def _is_due(self, tenant: str, entry: Entry, answered: Variant, beside: Variant) -> bool:
        """Return whether this request is to be kept for a trial; where it is, begin the pause until the next."""
        if tenant != entry.model.tenant or not self._bounds.samples_max:
            return False
        now_ns = self._clock.now_ns()
        tried = beside.id if answered.is_original else answered.id
        if now_ns < self._not_before_ns.get(tried, 0):
            return False
        if len(self._not_before_ns) > 1000:
            self._not_before_ns = {id: ns for id, ns in self._not_before_ns.items() if ns > now_ns}
        trial = None if answered.is_original else answered.trial
        is_settled = trial is not None and not trial.is_watched_closely(_RULES)
        every_ns = _WATCH_EVERY_NS if is_settled else _EVERY_NS
        self._not_before_ns[tried] = now_ns + every_ns
        return True

    def _has_room(self, tenant: str, size_bytes: int) -> bool:
        self._forget_old()
        own = self._kept.get(tenant, ())
        total = sum(one.asked.size_bytes for kept in self._kept.values() for one in kept)
        return (
            len(own) < self._bounds.samples_max
            and sum(one.asked.size_bytes for one in own) + size_bytes <= self._bounds.bytes_max
            and total + size_bytes <= self._bounds.bytes_total_max
        )

    def _keep(
        self, tenant: str, entry: Entry, answered: Variant, beside: Variant, asked: MediaAsked | TensorsAsked
    ) -> None:
        sample = TrialSample(tenant, entry.model.id, answered.id, beside, asked, self._clock.now_ns())
        self._kept.setdefault(tenant, deque()).append(sample)
        self._some.set()

    def _forget_old(self) -> None:
        since_ns = self._clock.now_ns() - FRESH_NS
        for tenant, kept in list(self._kept.items()):
            while kept and kept[0].at_ns < since_ns:
                kept.popleft()
            if not kept:
                del self._kept[tenant]
        self._settle()

    def _settle(self) -> None:
        if not self._kept:
            self._some.clear()


def _copied(tensors: Tensors) -> dict[str, np.ndarray]:
    """Return copies of tensors, because a request may lie in memory that its caller shares and writes again."""
    return {name: np.array(array) for name, array in tensors.items()}
