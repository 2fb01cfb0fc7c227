"""Who joins next: of each tenant one client at a time asks to be let in, so that many of one do not keep the others
waiting. Event-loop thread only.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from appliance.domain.errors import TooManySessions


@dataclass(slots=True)
class _Line:
    """Clients of one tenant that wait to be let in."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


class Joins:
    """Of all tenants; of one without a client that waits nothing is kept."""

    def __init__(self, waiting_max: int) -> None:
        """`waiting_max`: clients of a tenant that wait to be let in."""
        self._waiting_max = waiting_max
        self._lines: dict[tuple[str, str], _Line] = {}
        """By tenant and kind."""

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def turn(self, tenant: str, kind: str = "") -> AsyncIterator[None]:
        """Wait for those of the tenant that came before; clients of several kinds do not wait for one another.

        Raises: TooManySessions.
        """
        line = self._lines.setdefault((tenant, kind), _Line())
        if line.count >= self._waiting_max:
            of = "clients that wait to be let in"
            raise TooManySessions(tenant=tenant, sessions_max=self._waiting_max, of=of)
        line.count += 1
        try:
            async with line.turn:
                yield
        finally:
            line.count -= 1
            if not line.count:
                del self._lines[tenant, kind]
