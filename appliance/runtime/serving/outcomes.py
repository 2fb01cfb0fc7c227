"""What became of requests: the result of one that was answered, and where each is counted: in the figures, among the
notable requests, and, where the box refused it, among the decisions.
"""

from collections.abc import Sequence
from operator import add
from typing import Any

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import (
    ApplianceError,
    Busy,
    DeadlineExceeded,
    LimitReached,
    OutOfMemory,
    Overloaded,
    QueueFull,
    RunFailed,
    RunRefused,
    Unavailable,
)
from appliance.domain.notable import Cause, Kind, Spent
from appliance.domain.promised import PromiseEnd
from appliance.domain.request import RanPart, Request, Result
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.decisions.limits import admission, drop
from appliance.runtime.notable import NotableRequests, noted
from appliance.runtime.ports import DecisionSink
from appliance.runtime.servable import Servable
from appliance.runtime.serving.placement import Placed
from appliance.runtime.serving.trial_samples import TrialSamples
from appliance.runtime.telemetry import Telemetry

_BREAK_THE_SLO = (DeadlineExceeded, Overloaded, QueueFull, RunFailed, Unavailable)
"""What keeps the box from answering; other errors, and `RunRefused`, are the caller's."""
_NO_ROOM = (Overloaded, QueueFull, OutOfMemory, Busy)
"""Errors of a box that has no room for the request."""

EndedRun = tuple[dict[str, Any], int, int, int]
"""A run that has ended well: (outputs, start, end, items; 0 where it is counted with another request's)."""


class Outcomes:
    """Counts what became of requests. Event-loop thread only."""

    def __init__(
        self,
        clock: Clock,
        catalogue: Catalogue,
        telemetry: Telemetry,
        decisions: DecisionSink,
        trials: TrialSamples,
    ) -> None:
        """`trials`: where requests are kept on which another variant is to be tried."""
        self._trials = trials
        self._clock = clock
        self._catalogue = catalogue
        self._telemetry = telemetry
        self._decisions = decisions

    def answered(
        self,
        request: Request,
        entry: Entry,
        placed: Placed,
        items: int,
        run: EndedRun,
        placed_ns: int,
        parts: Sequence[RanPart] = (),
    ) -> None:
        """Put a request of so many items with its run into the figures; `parts`: what of it ran where, in parts."""
        servable, _, warm, load_ns, wake_ns = placed
        outputs, start_ns, end_ns, run_items = run
        if servable.variant.id in entry.trials:
            self._trials.offer_tensors(request, entry, servable.variant, outputs)
        key = (request.application_id, servable.variant.name, request.tenant)
        run_ns, counted = end_ns - start_ns, {"items": items, "run_items": run_items}
        spent = Spent(request.decoded_ns, start_ns - placed_ns - load_ns - wake_ns, load_ns, wake_ns, run_ns)
        if parts and run_items:  # else they are counted with another request's
            self._telemetry.ran_parts(key, parts)
        if (steps := request.steps) is not None:
            if not steps.is_last:
                self._telemetry.ran(key, warm=warm, compute_ns=run_ns, **counted)
                return
            warm, spent = warm and steps.is_warm, Spent(*map(add, spent, steps.spent))
        slo_ms = entry.application.latency_slo_ms
        kept = None if slo_ms is None else end_ns - request.arrival_ns <= slo_ms * NS_PER_MS
        is_sample = self._telemetry.done(
            key,
            warm=warm,
            parts_ns=(spent.queue_ns, spent.load_ns + spent.wake_ns, spent.compute_ns),
            at_ns=end_ns,
            slo_kept=None if request.is_read else kept,
            run_ns=run_ns,
            **counted,
        )
        is_late = request.runs_late and request.deadline_ns is not None and end_ns > request.deadline_ns
        if is_late:
            self._telemetry.late(key)
        notable = self._telemetry.notable
        if notable is not None and (
            is_sample
            or is_late
            or not warm
            or kept is False
            or (request.variant is None and servable is not entry.order[0])
        ):
            self._note(notable, request, entry, servable, spent, end_ns, is_late=is_late or kept is False, warm=warm)

    def written(self, request: Request, entry: Entry, variant: str, late: DeadlineExceeded | None = None) -> None:
        """Count whether the answer that a task has made of a run's outputs was there within the application's SLO;
        `late`: it was given up at its deadline.
        """
        slo_ms = entry.application.latency_slo_ms
        if slo_ms is None:
            return
        is_kept = self._clock.now_ns() - request.arrival_ns <= slo_ms * NS_PER_MS
        end = (PromiseEnd.KEPT if is_kept else PromiseEnd.LATE) if late is None else _broken_slo(request, slo_ms, late)
        if end is not None:
            self._telemetry.promise_ended((request.application_id, variant, request.tenant), end)

    def _note(
        self,
        notable: NotableRequests,
        request: Request,
        entry: Entry,
        servable: Servable,
        spent: Spent,
        end_ns: int,
        *,
        is_late: bool,
        warm: bool,
    ) -> None:
        """Keep one that was answered, for whoever asks why it was slow."""
        best = entry.first_choice
        is_smaller = request.variant is None and servable.name != best
        found = ((Cause.LATE, is_late), (Cause.COLD, not warm), (Cause.SMALLER, is_smaller))
        causes = tuple(cause for cause, is_so in found if is_so) or (Cause.SAMPLE,)
        kind = Kind(causes, request.tenant, servable.name, best)
        if not notable.counts(request.application_id, kind, end_ns):
            notable.add(noted(kind, request, entry.application.latency_slo_ms, end_ns, spent))

    def failed(self, request: Request, entry: Entry, error: Exception) -> None:
        """Put a request that gets this error into the figures; `Engine.infer` does so with those that fail there."""
        outcome, now_ns = "failed", self._clock.now_ns()
        if isinstance(error, DeadlineExceeded):
            outcome = "expired"
            self._decisions.record("drop", drop(request, error, now_ns))
        elif isinstance(error, LimitReached):
            outcome = "rejected"
            quota = self._catalogue.tenant(request.tenant).quota
            self._decisions.record("admission", admission(request, quota, error))
        variant, key = self._counted(request, entry)
        took_ns = now_ns - request.arrival_ns
        broken = _broken_slo(request, entry.application.latency_slo_ms, error)
        is_ours = _is_boxes_fault(error) and not isinstance(error, DeadlineExceeded)
        self._telemetry.failed(key, outcome, took_ns, broken, is_boxes_fault=is_ours)
        notable = self._telemetry.notable
        if notable is not None:
            causes = (Cause.FAILED, Cause.LATE) if isinstance(error, DeadlineExceeded) else (Cause.FAILED,)
            problem = type(error) if isinstance(error, ApplianceError) else None
            kind = Kind(causes, request.tenant, variant or "", entry.first_choice, problem)
            if not notable.counts(request.application_id, kind, now_ns):
                detail, spent = "" if problem is None else str(error), Spent(request.decoded_ns)
                notable.add(noted(kind, request, entry.application.latency_slo_ms, now_ns, spent, detail))

    def cancelled(self, request: Request, entry: Entry) -> None:
        """Put a request into the figures whose caller left before its result was there."""
        _, key = self._counted(request, entry)
        self._telemetry.failed(key, "cancelled", self._clock.now_ns() - request.arrival_ns)

    def _counted(self, request: Request, entry: Entry) -> tuple[str | None, tuple[str, str, str]]:
        """The variant of a request without a result, and the row that it counts in: none of a name that the caller made
        up.
        """
        variant = request.variant if request.variant in entry.servables else None
        return variant, (request.application_id, variant or "", request.tenant)


def result_of(placed: Placed, run: EndedRun, placed_ns: int, ran_on: str = "", parts: Sequence[RanPart] = ()) -> Result:
    """What a request gets of its run; `ran_on`: the build, where it need not be the one that was placed."""
    servable, _, warm, load_ns, wake_ns = placed
    outputs, start_ns, end_ns, _ = run
    variant = servable.variant
    timings = (start_ns - placed_ns - load_ns - wake_ns, load_ns, end_ns - start_ns, wake_ns)
    build_id = ran_on or servable.build_id
    known = variant.evidence, variant.doubt
    return Result(outputs, variant.id, variant.name, variant.number, warm, *timings, parts, build_id, *known)


def _is_boxes_fault(error: Exception) -> bool:
    """Whether the box kept the request from its answer, rather than the caller."""
    return isinstance(error, _BREAK_THE_SLO) and not isinstance(error, RunRefused)


def _broken_slo(request: Request, slo_ms: float | None, error: Exception) -> PromiseEnd | None:
    """Return how an error breaks the SLO; None: it does not, for example where the deadline of the caller was before
    that of the SLO.
    """
    if slo_ms is None or not _is_boxes_fault(error):
        return None
    if not isinstance(error, DeadlineExceeded):
        return PromiseEnd.REFUSED if isinstance(error, _NO_ROOM) else PromiseEnd.FAILED
    promised_ns = request.arrival_ns + int(slo_ms * NS_PER_MS)
    is_hasty = request.deadline_ns is not None and request.deadline_ns < promised_ns
    return None if is_hasty else PromiseEnd.LATE
