"""Lanes of promises of latency: a frame waits for its planned worker, which runs what waits when its run before is over
(Jellyfish, sections III-B and IV-A). Equation 5 counts on it: one run of waiting, one of its own.

The engine's workers are free for all tenants: a frame whose planned worker is busy would begin on another one, alone,
and the batches that the plan's rates need would never be formed.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from appliance.domain.slots import Slot

NO_LANE = Slot(is_planned=True)


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """What one worker of a plan does. `batch`: that the plan counts on."""

    worker: int
    batch: int
    sessions: frozenset[str]


class WorkerLanes:
    """The slots of all sessions with a planned worker."""

    def __init__(self) -> None:
        self._slots: dict[str, tuple[Hashable, Slot]] = {}
        """By session, with the pool that it was planned in."""

    def plan(self, pool: Hashable, workers: Iterable[PlannedWorker]) -> None:
        """Replace what the workers of a pool do. Frames that wait go on waiting where they are."""
        self._slots = {session: found for session, found in self._slots.items() if found[0] != pool}
        for one in workers:
            slot = Slot((pool, one.worker), rows=one.batch, is_planned=True)
            self._slots.update(dict.fromkeys(one.sessions, (pool, slot)))

    def slot(self, session: str) -> Slot:
        """Return what is said of the runs of a session's planned frames."""
        found = self._slots.get(session)
        return NO_LANE if found is None else found[1]
