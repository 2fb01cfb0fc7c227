"""The latest notable requests of each application, in memory.

Bounded for each application and in all, where the application that had none for longest gives way. Those alike that
come right after one another (a flood that is late, a time without the best variant) are counted with the first of them.
Event-loop thread only.
"""

from collections import OrderedDict, deque

from appliance.clock import NS_PER_MS
from appliance.domain.notable import Cause, Kind, NotableRequest, Spent
from appliance.domain.request import Request

PER_APPLICATION = 64
ALL_MAX = 4096
_SAMPLES_SHARE = 4
"""Of samples a quarter as many are kept as of the others, apart from them."""
_ALIKE_NS = 100 * NS_PER_MS
_ID_MAX, _DETAIL_MAX = 64, 300
"""Characters that are kept of what a caller named, and of an error."""


class NotableRequests:
    """By application, oldest first."""

    def __init__(self, per_application: int = PER_APPLICATION, all_max: int = ALL_MAX) -> None:
        self._per_application = per_application
        self._all_max = all_max
        self._kept: OrderedDict[str, tuple[deque[NotableRequest], deque[NotableRequest]]] = OrderedDict()
        """Application id → notable ones, samples; the application with the newest is last."""
        self._count = 0

    def counts(self, application_id: str, kind: Kind, ended_ns: int) -> bool:
        """Count one that is like the latest one of its application and came right after it; whether it is. Else it is
        worth to be made and to be added.
        """
        kept = self._kept.get(application_id)
        ring = None if kept is None else kept[Cause.SAMPLE in kind.causes]
        if not ring or ended_ns - ring[-1].ended_ns >= _ALIKE_NS or ring[-1].kind != kind:
            return False
        ring[-1].times += 1
        return True

    def add(self, request: NotableRequest) -> None:
        """One more that is not like the latest one."""
        kept = self._kept.get(request.application_id)
        if kept is None:
            samples = max(1, self._per_application // _SAMPLES_SHARE)
            kept = self._kept[request.application_id] = deque(maxlen=self._per_application), deque(maxlen=samples)
        ring = kept[Cause.SAMPLE in request.kind.causes]
        self._count += len(ring) < (ring.maxlen or 0)
        ring.append(request)
        self._kept.move_to_end(request.application_id)
        while self._count > self._all_max:
            self._forget_one()

    def of(self, application_id: str) -> list[NotableRequest]:
        """Those of an application, the newest first."""
        notable, samples = self._kept.get(application_id, ((), ()))
        return sorted((*notable, *samples), key=lambda one: one.ended_ns)[::-1]

    def forget(self, application_id: str) -> None:
        """The application is gone."""
        for ring in self._kept.pop(application_id, ()):
            self._count -= len(ring)

    def forget_tenant(self, tenant: str) -> None:
        """A tenant is gone; what it asked of applications that others share with it goes, too."""
        for id, (notable, samples) in list(self._kept.items()):
            before = len(notable) + len(samples)
            kept = [
                deque((one for one in ring if one.kind.tenant != tenant), ring.maxlen) for ring in (notable, samples)
            ]
            self._count -= before - sum(map(len, kept))
            if any(kept):
                self._kept[id] = kept[0], kept[1]
            else:
                del self._kept[id]

    def __len__(self) -> int:
        return self._count

    def _forget_one(self) -> None:
        oldest, (notable, samples) = next(iter(self._kept.items()))
        (notable or samples).popleft()
        self._count -= 1
        if not notable and not samples:
            del self._kept[oldest]


def noted(
    kind: Kind, request: Request, slo_ms: float | None, ended_ns: int, spent: Spent, detail: str = ""
) -> NotableRequest:
    """A request as it is kept, without what it carried. `slo_ms`: its application's; `detail`: the error in words."""
    return NotableRequest(
        kind=kind,
        application_id=request.application_id,
        id=request.id[:_ID_MAX],
        arrival_ns=request.arrival_ns,
        ended_ns=ended_ns,
        slo_ms=slo_ms,
        deadline_ns=request.deadline_ns,
        spent=spent,
        detail=detail[:_DETAIL_MAX],
    )
