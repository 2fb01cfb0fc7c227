"""What single calls take of the processors beside pipelines, of late."""

from collections.abc import Mapping

from appliance.clock import NS_PER_S

SMOOTHING_NS = 2 * NS_PER_S
LEAST = 0.02
"""A share below this is none: plans need not see it."""


class SingleLoad:
    """Shares by group of processors. All instants are the caller's."""

    def __init__(self) -> None:
        self._seen: tuple[int, Mapping[int, float]] | None = None
        self._workers: dict[int, float] = {}
        """Workers that are busy with single calls."""

    def observe(self, now_ns: int, busy_s: Mapping[int, float]) -> None:
        """Seconds that single calls have taken of each group since the start."""
        if self._seen is not None and now_ns <= self._seen[0]:
            return
        before, self._seen = self._seen, (now_ns, dict(busy_s))
        if before is None:
            return
        took_s = (now_ns - before[0]) / NS_PER_S
        weight = min(1.0, (now_ns - before[0]) / SMOOTHING_NS)
        for group, seconds in busy_s.items():
            workers = max(0.0, seconds - before[1].get(group, 0.0)) / took_s
            known = self._workers.get(group, 0.0)
            self._workers[group] = known + weight * (workers - known)

    def share(self, group: int, workers: int) -> float:
        """Of a group's workers."""
        found = min(1.0, self._workers.get(group, 0.0) / max(1, workers))
        return found if found >= LEAST else 0.0
