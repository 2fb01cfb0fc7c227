"""Sessions over restarts: stored when they begin, change and end, never for a frame."""

from contextlib import suppress
from typing import Protocol

from appliance.domain.errors import Unavailable, UnknownSession
from appliance.domain.session import Session
from appliance.domain.states import SessionState
from appliance.runtime.sessions.live import LiveSession


class SessionStore(Protocol):
    """Where sessions are kept; the store of the box."""

    async def put(self, session: Session) -> None:
        """Add or replace. Raises: StorageFull ..."""
        ...

    async def remove(self, id: str) -> None:
        """It has ended."""
        ...


class Storing:
    """Until there is a store nothing is stored; what began before it is then. Event-loop thread only."""

    def __init__(self) -> None:
        self._store: SessionStore | None = None
        self._not_stored: dict[str, LiveSession] = {}
        """Begun before there was a store."""
        self._not_restored: list[str] = []
        """Stored, and not taken back: to be removed."""

    def into(self, store: SessionStore) -> None:
        """From now on."""
        self._store = store

    async def keep(self, live: LiveSession, session: Session | None = None) -> None:
        """Store it as it is now, or is about to be; of one that ends meanwhile nothing stays.

        Raises: UnknownSession where it has; StorageFull ...
        """
        live.check_alive()
        if self._store is None:
            self._not_stored[live.id] = live
            return
        await self._store.put(session or live.session)
        if live.state is SessionState.ENDED:
            with suppress(Unavailable):
                await self._store.remove(live.id)
            raise UnknownSession(name=live.id)

    async def remove(self, live: LiveSession) -> None:
        """It has ended. With a full disk it ends again after a restart, for nobody will be heard of it."""
        self._not_stored.pop(live.id, None)
        if self._store is not None:
            with suppress(Unavailable):
                await self._store.remove(live.id)

    def leave_out(self, session: Session) -> None:
        """Stored, and not taken back."""
        self._not_restored.append(session.id)

    @property
    def is_swept(self) -> bool:
        """Whether there is nothing to store or to remove, or nowhere to do it."""
        return self._store is None or not (self._not_restored or self._not_stored)

    async def sweep(self) -> None:
        """Once the store is there, remove rows of sessions that were not taken back, and do what `store_begun` does."""
        while self._store is not None and self._not_restored:
            with suppress(Unavailable):
                await self._store.remove(self._not_restored[-1])
            self._not_restored.pop()
        await self.store_begun()

    async def store_begun(self) -> None:
        """Once the store is there, store sessions that began before; what the disk has no room for is tried again with
        the next sweep.
        """
        for live in list(self._not_stored.values()) if self._store is not None else ():
            with suppress(Unavailable):
                with suppress(UnknownSession):
                    await self.keep(live)
                self._not_stored.pop(live.id, None)
