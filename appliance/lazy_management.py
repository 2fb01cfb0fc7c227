"""When the second half of a start is done: `management.py` is imported and made in a thread once somebody asks for it,
or nobody has been in a hurry for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

from appliance.api.http.limits import ASGIApp

if TYPE_CHECKING:
    from appliance.management import Management
    from appliance.modelstore.store.models import Models

_AFTER_S = 1.0
"""After a start, the processors are for those who want an answer."""


def import_management() -> ModuleType:
    """The module; whoever is the first to ask waits for seconds."""
    from appliance import management

    return management


class LazyManagement:
    """What manages a box, and the framework's application over it. Event-loop thread only."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._is_wanted = asyncio.Event()
        """Somebody waits for it."""
        self._making: asyncio.Task[tuple[Management, ASGIApp]] | None = None
        self.is_needed = False
        """Something was answered that only its store can keep."""
        self._is_begun = False
        """It is being imported and made, or there."""
        self._put_off: list[Callable[[Management], Awaitable[None]]] = []
        self._catching_up: asyncio.Task[None] | None = None
        self.on_made: Callable[[], None] = _nothing
        """Called once it is there."""

    def begin(self, make: "Callable[[ModuleType], Management]") -> None:
        """The box serves: from now on it is made, of the module, when its time has come."""
        self._making = asyncio.create_task(self._make(make), name="management")
        self._making.add_done_callback(self._look_at)

    @property
    def is_awaited(self) -> bool:
        """Whether it is being made, or will be."""
        return self._making is not None and not self._making.done()

    @property
    def is_made(self) -> bool:
        """Whether it is there, and answers at once."""
        made = self._making
        return made is not None and made.done() and not made.cancelled() and made.exception() is None

    def put_off(self, work: "Callable[[Management], Awaitable[None]]") -> None:
        """Have something done as soon as it is there, and before it answers anything; `work` raises nothing."""
        self._put_off.append(work)
        if self.is_made:
            self._catching_up = asyncio.create_task(self._catch_up(), name="put off")

    async def get(self) -> "tuple[Management, ASGIApp]":
        """As soon as it is there."""
        assert self._making is not None
        self._is_wanted.set()
        return await asyncio.shield(self._making)

    async def models(self) -> "Models":
        """The store's, as soon as they are there."""
        management, _ = await self.get()
        return management.box.store.models

    async def stop(self) -> None:
        """End what it does in the background."""
        if self._making is not None and not self._is_begun and not self.is_needed:
            # Importing it takes seconds. Nothing was managed yet: the next start brings back what this one began with.
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
            return
        with suppress(Exception):  # told when it happened
            management, _ = await self.get()
            await management.stop()

    async def close(self) -> None:
        """Write the last decisions, once nothing decides any more."""
        if self._making is not None and not self._making.cancelled():
            with suppress(Exception):
                management, _ = await self.get()
                await management.close()

    async def _make(self, make: "Callable[[ModuleType], Management]") -> "tuple[Management, ASGIApp]":
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_wanted.wait(), _AFTER_S)
        self._is_begun = True
        module = await asyncio.to_thread(import_management)
        management = make(module)
        service = await asyncio.to_thread(management.service)
        management.start()
        await management.catch_up()
        await self._do_put_off(management)
        self.on_made()
        return management, service

    async def _catch_up(self) -> None:
        with suppress(Exception):  # told when it happened
            management, _ = await self.get()
            await self._do_put_off(management)

    async def _do_put_off(self, management: "Management") -> None:
        while self._put_off:
            await self._put_off.pop(0)(management)

    def _look_at(self, making: "asyncio.Task[tuple[Management, ASGIApp]]") -> None:
        if not making.cancelled() and (error := making.exception()) is not None:
            self._logger.error("the box serves, but cannot be managed", reason=repr(error))


def _nothing() -> None:
    """Nobody waits for what manages the box."""
