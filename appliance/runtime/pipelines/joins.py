"""Who joins next: of each tenant one client at a time waits for the next round of planning, so that many of one do not
keep the others waiting. Event-loop thread only.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from appliance.domain.errors import TooManySessions

JOINS_MAX = 32
"""Clients of a tenant that wait to be let in."""


@dataclass(slots=True)
class _Line:
    """Clients of one tenant that wait to be let in."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


class Joins:
    """Of all tenants; of one without a client that waits nothing is kept."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for those of the tenant that came before. Raises: TooManySessions."""
        line = self._lines.setdefault(tenant, _Line())
        if line.count >= JOINS_MAX:
            raise TooManySessions(tenant=tenant, sessions_max=JOINS_MAX, of="clients that wait to be let in")
        line.count += 1
        try:
            async with line.turn:
                yield
        finally:
            line.count -= 1
            if not line.count:
                del self._lines[tenant]
