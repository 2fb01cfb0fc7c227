"""Deleting a model: nobody may ask for it any more, what works on it ends, then its rows and content go."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from appliance.modelstore.store.models import Models

Retire = Callable[[str], Awaitable[None]]
"""Returns when nothing of one part of the box works on that model any more."""


class ModelDeletion:
    """Deletes models one by one; two who ask for the same one wait for the same deletion."""

    def __init__(self, models: Models, retire: Sequence[Retire]) -> None:
        """`retire`: who must let go of a model, in this order."""
        self._models = models
        self._retire = retire
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def delete(self, id: str) -> None:
        """Once it has begun it goes through, at the next start at the latest, also when the caller is cancelled.

        Raises: UnknownModel; InUse while another tenant's application uses it.
        """
        task = self._under_way.get(id)
        if task is None:
            task = asyncio.create_task(self._delete(id), name=f"delete {id}")
            self._under_way[id] = task
            task.add_done_callback(lambda _done: self._under_way.pop(id, None))
        await asyncio.shield(task)

    async def _delete(self, id: str) -> None:
        await self._models.begin_deletion(id)
        for let_go in self._retire:
            await let_go(id)
        await self._models.finish_deletion(id)
