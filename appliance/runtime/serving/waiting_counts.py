"""How many requests wait: by calling tenant and application, in all, and of some sorts. Each bound of the queue is
asked here. No clock, no order.
"""

from collections import Counter

from appliance.domain.errors import QueueFull
from appliance.domain.request import Request
from appliance.policies.limits.requests import AdmissionInput, refused_by
from appliance.runtime.serving.portions import Portions


class WaitingCounts:
    """An application that is shared counts for each caller by itself: who fills its bound refuses nobody else."""

    def __init__(self, len_max: int, total_max: int) -> None:
        """`len_max`: of one tenant for one application; `total_max`: of all, of which no tenant may take everything."""
        self._len_max = len_max
        self._places = Portions(total_max)
        self._all: Counter[tuple[str, str]] = Counter()
        self._items: Counter[tuple[str, str]] = Counter()
        """Of these, those that are items of pipelines."""
        self._planned: Counter[str] = Counter()
        """Tenant → those that the plan of a pipeline counts on; tenants that have some."""

    def __len__(self) -> int:
        return self._places.taken

    def check_room(self, application_id: str, tenant: str) -> None:
        """Raises: QueueFull."""
        waiting = self._all.get((tenant, application_id), 0)
        is_full = refused_by(AdmissionInput(waiting=waiting, queue_len_max=self._len_max)) is not None
        if is_full or not self._places.has_room(tenant):
            raise QueueFull(application_id=application_id, queue_len_max=self._len_max, waiting=waiting)

    def add(self, request: Request) -> None:
        """One more waits."""
        line = request.tenant, request.application_id
        self._places.add(request.tenant)
        self._all[line] += 1
        if request.is_item:
            self._items[line] += 1
        if request.beyond_plan is False:
            self._planned[request.tenant] += 1

    def remove(self, request: Request) -> None:
        """It waits no more."""
        line = request.tenant, request.application_id
        self._places.give(request.tenant)
        for counts in (self._all, self._items) if request.is_item else (self._all,):
            counts[line] -= 1
            if not counts[line]:
                del counts[line]
        if request.beyond_plan is False:
            self._planned[request.tenant] -= 1
            if not self._planned[request.tenant]:
                del self._planned[request.tenant]

    def of(self, request: Request) -> int:
        """How many wait of its tenant for its application, itself included where it does."""
        return self._all[request.tenant, request.application_id]

    def are_items(self, tenant: str, application_id: str) -> bool:
        """Whether all that wait of a tenant for an application are items of pipelines."""
        return self._items[tenant, application_id] == self._all[tenant, application_id]

    def has_planned_beside(self, tenant: str) -> bool:
        """Whether another tenant waits with what the plan of a pipeline counts on."""
        return any(other != tenant for other in self._planned)

    def lengths(self) -> dict[str, int]:
        """Application → how many wait for it, whoever called."""
        found: Counter[str] = Counter()
        for (_, application_id), count in self._all.items():
            found[application_id] += count
        return dict(sorted(found.items()))
