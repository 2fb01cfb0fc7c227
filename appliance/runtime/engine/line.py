"""The order in which waiting calls have their turns.

Processor time goes to tenants by weight, and inside a tenant to its applications by weight (start-time fair queueing,
`serving/fairness.py`). Inside an application calls go by urgency. Applications of a tenant whose used time differs by
little form a *band*, in which urgency decides across applications.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.runtime.engine.fairness import FairLine, Flow
from appliance.runtime.engine.work import FOREVER_NS, LONG_NS, Call, CallState, Kind

ACTIVE_NS = 60 * NS_PER_S
"""A tenant that asked within this time may ask again at any moment."""
BAND_NS = LONG_NS
"""Used time by which applications of a tenant may differ while urgency decides between them."""
ITEMS_BAND_NS = 500 * NS_PER_MS
"""The same where only items of pipelines wait: a frame is in time with its last item, whatever application that calls.
In virtual time, three pipelines at 70 % load have 0.56 s of late items with this band and 1.14 s with `BAND_NS`."""
NEAR_MAX = 16
"""Applications of a tenant that are compared before a run."""
KEPT_MAX = 64
"""Applications of an idle tenant that are remembered without need."""


@dataclass(slots=True, eq=False)
class ApplicationLine(Flow):
    """Waiting calls of one tenant to one application."""

    heap: list[tuple[tuple[int, int, int, int], Call]] = field(default_factory=list)
    """Ordered by key. Calls that have left stay until they are first."""
    waiting: int = 0
    items: int = 0
    """Waiting items of pipelines."""

    def head(self) -> Call | None:
        """Return the most urgent call."""
        heap = self.heap
        while heap:
            key, call = heap[0]
            if call.key is key and call.state is CallState.WAITING:
                return call
            heapq.heappop(heap)
        return None

    def in_order(self) -> Iterator[Call]:
        """Yield waiting calls, the most urgent first. A heap is walked: the first few of many cost little."""
        heap, ahead = self.heap, [(self.heap[0], 0)] if self.heap else []
        while ahead:
            (key, call), at = heapq.heappop(ahead)
            if call.key is key and call.state is CallState.WAITING:
                yield call
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap):
                    heapq.heappush(ahead, (heap[child], child))


@dataclass(slots=True, eq=False)
class TenantLine(Flow):
    """Waiting calls of one tenant."""

    applications: dict[str, ApplicationLine] = field(default_factory=dict)
    fair: FairLine[ApplicationLine] = field(default_factory=FairLine)
    planned: int = 0
    """Waiting calls that a pipeline's plan counts on."""

    def of(self, application: str) -> ApplicationLine:
        """Return the line of an application."""
        found = self.applications.get(application)
        if found is None:
            found = self.applications[application] = ApplicationLine()
        return found

    def head(self) -> Call | None:
        """Return the call whose turn it is."""
        first = self.fair.first()
        if first is None:
            return None
        if self.fair.waiting == 1:
            return first.head()
        heads = [call for line in self._band() if (call := line.head()) is not None]
        return min(heads, key=_key, default=None)

    def turn(self, most: int) -> list[list[Call]]:
        """Return the first calls in their order: those of the band by key, then those of each other application, by
        the time that these have used.
        """
        if self.fair.waiting == 1:
            first = self.fair.first()
            return [] if first is None else [list(islice(first.in_order(), most))]
        band = self._band()
        each = max(2, most // max(1, self.fair.waiting))
        found = [sorted((call for line in band for call in islice(line.in_order(), each)), key=_key)]
        if len(found[0]) < most:
            rest = [line for line in self.applications.values() if line.entry is not None and line not in band]
            found += [list(islice(line.in_order(), each)) for line in sorted(rest, key=place)[: most - len(band)]]
        return found

    def _band(self) -> list[ApplicationLine]:
        near = list(islice(self.fair.near(ITEMS_BAND_NS), NEAR_MAX))
        if any(line.waiting > line.items for line in near):
            near = list(islice(self.fair.near(BAND_NS), NEAR_MAX))
        return near


class Line:
    """Waiting calls of all tenants, and the processor time that each has used."""

    def __init__(self) -> None:
        self.fair: FairLine[TenantLine] = FairLine()
        self.tenants: dict[str, TenantLine] = {}
        self.waiting = 0
        self._with_planned = 0
        """Tenants that wait with calls which plans count on."""
        self._number = 0
        self._seen: OrderedDict[str, int] = OrderedDict()
        """Tenant → when it last asked or ran, the latest last; those of the last minute."""

    def of(self, tenant: str) -> TenantLine:
        """Return the line of a tenant."""
        found = self.tenants.get(tenant)
        if found is None:
            found = self.tenants[tenant] = TenantLine()
        return found

    # -- order ---------------------------------------------------------------------------------------------------------

    def put(self, call: Call) -> None:
        """Add a call. Its key says how urgent it is; a call that has a number keeps it."""
        if call.key is None:
            self._number += 1
            number = self._number
        else:
            number = call.key[3]
        call.key = key = (_is_lost(call), _rank(call), _urgency(call), number)
        call.state = CallState.WAITING
        tenant = self.of(call.tenant)
        line = tenant.of(call.application)
        heapq.heappush(line.heap, (key, call))
        line.waiting += 1
        line.items += call.kind is Kind.ITEM
        self.waiting += 1
        if call.beyond is False:
            tenant.planned += 1
            self._with_planned += tenant.planned == 1
        if line.heap[0][1] is call:
            tenant.fair.put(line, key)
        if tenant.entry is None:
            self.fair.put(tenant, number)

    def remove(self, call: Call, state: CallState) -> None:
        """Take a waiting call out."""
        call.state = state
        tenant = self.tenants[call.tenant]
        line = tenant.applications[call.application]
        line.waiting -= 1
        line.items -= call.kind is Kind.ITEM
        self.waiting -= 1
        if call.beyond is False:
            tenant.planned -= 1
            self._with_planned -= tenant.planned == 0
        if line.heap[0][1] is call or not line.waiting:
            head = line.head()
            if head is None:
                tenant.fair.drop(line)
                if not tenant.fair.waiting:
                    self.fair.drop(tenant)
            else:
                assert head.key is not None
                tenant.fair.put(line, head.key)

    def put_behind(self, call: Call) -> None:
        """Give a waiting item its new place after its frame was lost: behind items whose frames can be in time."""
        number = call.key
        self.remove(call, CallState.ANNOUNCED)
        call.key = number
        self.put(call)

    def in_turn(self) -> Iterator[TenantLine]:
        """Yield tenants that wait, in the order of their turns. The caller may remove calls meanwhile."""
        first = self.fair.first()
        if first is None:
            return
        yield first
        if self.fair.waiting > 1 or (self.fair.waiting == 1 and self.fair.first() is not first):
            rest = [tenant for tenant in self.tenants.values() if tenant.entry is not None and tenant is not first]
            yield from sorted(rest, key=place)

    def has_planned_beside(self, call: Call) -> bool:
        """Return whether another tenant waits with calls that its plan counts on."""
        return self._with_planned > (self.of(call.tenant).planned > 0)

    def ahead_ns(self, call: Call) -> int:
        """Return the work of the same application that goes before a call which is about to wait."""
        tenant = self.tenants.get(call.tenant)
        line = None if tenant is None else tenant.applications.get(call.application)
        if line is None:
            return 0
        key = (_is_lost(call), _rank(call), _urgency(call), self._number + 1)
        return sum(
            other.work_ns
            for other_key, other in line.heap
            if other_key < key and other.key is other_key and other.state is CallState.WAITING
        )

    # -- used time -----------------------------------------------------------------------------------------------------

    def begin(self, call: Call, charged_ns: int, *, overtakes: bool = False) -> None:
        """Charge a call that begins. `overtakes`: plans of others may hold calls before it back, which keep what they
        are behind.
        """
        tenant = self.of(call.tenant)
        if overtakes:
            self.fair.overtake(tenant, charged_ns, call.weights[0])
        else:
            self.fair.begin(tenant, charged_ns, call.weights[0])
        tenant.fair.overtake(tenant.of(call.application), charged_ns, call.weights[1])

    def join(self, call: Call, charged_ns: int) -> None:
        """Charge a call that begins in the run of another."""
        tenant = self.of(call.tenant)
        self.fair.join(tenant, charged_ns, call.weights[0])
        tenant.fair.join(tenant.of(call.application), charged_ns, call.weights[1])

    def end(self, call: Call, error_ns: int, now_ns: int) -> None:
        """Correct the charge of a call whose run took `error_ns` more than expected."""
        tenant = self.of(call.tenant)
        self.fair.end(tenant, error_ns, call.weights[0])
        tenant.fair.end(tenant.of(call.application), error_ns, call.weights[1])
        self.saw(call.tenant, now_ns)
        if not tenant.fair.is_busy and len(tenant.applications) > KEPT_MAX:
            tenant.applications.clear()  # all would start equal
        self._forget(now_ns)

    def charge(self, tenant: str, application: str, took_ns: int, weights: tuple[float, float]) -> None:
        """Charge processor time that was used outside the workers."""
        line = self.of(tenant)
        self.fair.ran(line, took_ns, weights[0])
        line.fair.ran(line.of(application), took_ns, weights[1])

    def is_behind(self, tenant: str) -> bool:
        """Return whether another tenant waits whose turn comes before."""
        first = self.fair.first()
        return first is not None and self.fair.start_of(first) < self.start_of(tenant)

    def calls(self) -> list[Call]:
        """Return all calls that wait."""
        lines = [line for tenant in self.tenants.values() for line in tenant.applications.values()]
        entries = [entry for line in lines for entry in line.heap]
        return [call for key, call in entries if call.key is key and call.state is CallState.WAITING]

    def start_of(self, tenant: str) -> float:
        """Return the start tag of a tenant's next run: by weight 1, the time that it has used."""
        found = self.tenants.get(tenant)
        return self.fair.now if found is None else self.fair.start_of(found)

    def saw(self, tenant: str, now_ns: int) -> None:
        """Note that a tenant is active."""
        self._seen[tenant] = now_ns
        self._seen.move_to_end(tenant)

    def may_others_go_before(self, tenant: str, start: float, now_ns: int) -> bool:
        """Return whether another tenant was active in the last minute and its next run would start before a tag."""
        active_since_ns = now_ns - ACTIVE_NS
        for other, seen_ns in reversed(self._seen.items()):
            if seen_ns < active_since_ns:
                return False
            if other != tenant and (other not in self.tenants or self.tenants[other].tag < start):
                return True
        return False

    def _forget(self, now_ns: int) -> None:
        """Drop tenants that have been idle for a minute, so that memory does not grow with their number."""
        active_since_ns = now_ns - ACTIVE_NS
        while len(self._seen) > 1 and next(iter(self._seen.values())) < active_since_ns:
            name, _ = self._seen.popitem(last=False)
            if name in self.tenants and not self.tenants[name].fair.is_busy:
                del self.tenants[name]


def place(flow: Flow) -> list[Any]:
    """Return what orders flows that wait."""
    assert flow.entry is not None
    return flow.entry[:3]


def _key(call: Call) -> tuple[int, int, int, int]:
    assert call.key is not None
    return call.key


def _is_lost(call: Call) -> int:
    return int(call.frame is not None and call.frame.is_lost)


def _rank(call: Call) -> int:
    return -FOREVER_NS if call.is_begun else -call.priority


def _urgency(call: Call) -> int:
    """Return when an item has to begin at the latest; for other calls their deadline."""
    if call.kind is Kind.ITEM and call.drop_ns is not None:
        return call.drop_ns - call.likely_ns
    return FOREVER_NS if call.deadline_ns is None else call.deadline_ns
