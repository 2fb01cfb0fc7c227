"""A queue that is fair between tenants: whoever was served longest ago is next; within a tenant, first come first served."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Unbounded on purpose: what waits here is a row in the database and a file on disk already."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._served_at: dict[str, int] = {}
        self._takes = 0
        self._changed = asyncio.Condition()

    def __len__(self) -> int:
        return sum(len(items) for items in self._waiting.values())

    async def put(self, tenant: str, item: T) -> None:
        """Add behind the tenant's other items."""
        async with self._changed:
            self._waiting.setdefault(tenant, deque()).append(item)
            self._changed.notify()

    async def take(self) -> T:
        """Wait for an item."""
        async with self._changed:
            while not self._waiting:
                await self._changed.wait()
            tenant = min(self._waiting, key=lambda name: (self._served_at.get(name, 0), name))
            items = self._waiting[tenant]
            item = items.popleft()
            if not items:
                del self._waiting[tenant]
            self._takes += 1
            self._served_at[tenant] = self._takes
            return item

    def remove(self, item: T) -> bool:
        """Take out one that waits; returns whether it was there."""
        for tenant, items in list(self._waiting.items()):
            if item in items:
                items.remove(item)
                if not items:
                    del self._waiting[tenant]
                return True
        return False
