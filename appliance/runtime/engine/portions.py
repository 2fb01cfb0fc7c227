"""A limit that tenants share: each may take much of it while nobody else asks, and nobody can take all of it.

Dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM
Transactions on Networking 6(2), 1998): a tenant may hold at most `GREED` times what is free. So one alone takes
GREED / (1 + GREED) of the limit, k of them take GREED / (1 + k GREED) each, and the rest stays free for who comes next.
"""

GREED = 7
"""One tenant alone may take seven eighths."""


class Portions:
    """Who holds how much of one limit, in whatever unit it counts (bytes, places). No clock, no waiting; O(1)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._held: dict[str, int] = {}

    @property
    def of_one_max(self) -> int:
        """The portion of a tenant that is alone."""
        return self.limit * GREED // (1 + GREED)

    def has_room(self, tenant: str, count: int = 1) -> bool:
        """Whether a tenant may take so much more now.

        What one takes first is bounded by the limit alone: a body larger than the reserve passes where there is room,
        and one larger than the limit where there is nothing else (its own bound holds it).
        """
        if not self.taken:
            return True
        free = self.limit - self.taken - count
        if free < 0:
            return False
        held = self._held.get(tenant, 0)
        return held == 0 or held + count <= GREED * free

    def take(self, tenant: str, count: int = 1) -> bool:
        """Count it in where there is room; whether there was."""
        if not self.has_room(tenant, count):
            return False
        self.add(tenant, count)
        return True

    def add(self, tenant: str, count: int = 1) -> None:
        """Count it in, room or not: who asks has asked `has_room` already, or held it before."""
        self.taken += count
        self._held[tenant] = self._held.get(tenant, 0) + count

    def give(self, tenant: str, count: int = 1) -> None:
        """Count out what was taken."""
        left = self._held[tenant] - count
        assert left >= 0, tenant
        self.taken -= count
        if left:
            self._held[tenant] = left
        else:
            del self._held[tenant]

    def held(self, tenant: str) -> int:
        """Return how much of the limit a tenant holds."""
        return self._held.get(tenant, 0)

    def clear(self) -> None:
        """Nobody holds anything any more."""
        self.taken = 0
        self._held.clear()
