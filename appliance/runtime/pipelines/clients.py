"""Clients of a pipeline: each said how many frames it sends, and leaves when it says so or is silent (SC-03)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from appliance.clock import NS_PER_S
from appliance.domain.errors import TooManySessions
from appliance.domain.pipeline import CLIENTS_MAX, Pipeline, PipelineClient

SILENT_NS = 10 * NS_PER_S
"""Of which nothing was heard for so long has left ..."""
SILENT_FRAMES = 3
"""... and for as long as so many of its frames take to come."""


def least_of(times_ms: Iterable[float | None]) -> float | None:
    """The least of those that are there."""
    return min((one for one in times_ms if one is not None), default=None)


@dataclass(slots=True)
class _Joined:
    client: PipelineClient
    seen_ns: int
    under_way: int = 0
    """Frames of it: who waits for an answer is there."""

    def is_silent(self, now_ns: int) -> bool:
        silence_ns = max(SILENT_NS, SILENT_FRAMES * NS_PER_S / self.client.fps)
        return not self.client.is_session and not self.under_way and now_ns - self.seen_ns >= silence_ns


class Clients:
    """Of one pipeline, in the order in which they joined. All instants are the caller's."""

    def __init__(self) -> None:
        self._joined: dict[str, _Joined] = {}

    def __iter__(self) -> Iterator[PipelineClient]:
        return (one.client for one in self._joined.values())

    def __len__(self) -> int:
        return len(self._joined)

    def __contains__(self, id: object) -> bool:
        return id in self._joined

    @property
    def fps(self) -> float:
        """Of all of them, as they said."""
        return sum(one.client.fps for one in self._joined.values())

    @property
    def within_ms(self) -> float | None:
        """What frames may take in the box for who needs them soonest; None: nobody says so."""
        return least_of(one.client.within_ms for one in self._joined.values())

    def get(self, id: str) -> PipelineClient | None:
        """None: nobody of this id is here."""
        found = self._joined.get(id)
        return None if found is None else found.client

    def takes(self, id: str) -> bool:
        """Whether frames may name it: a session's come through the session."""
        found = self._joined.get(id)
        return found is not None and not found.client.is_session

    def require_room(self, pipeline: Pipeline) -> None:
        """Raises: TooManySessions where no more may join."""
        if len(self._joined) >= CLIENTS_MAX:
            of = f"clients of pipeline {pipeline.name!r}"
            raise TooManySessions(tenant=pipeline.tenant, sessions_max=CLIENTS_MAX, of=of)

    def join(self, client: PipelineClient, now_ns: int) -> None:
        """It was let in."""
        self._joined[client.id] = _Joined(client, now_ns)

    def change(self, id: str, fps: float, within_ms: float | None = None) -> None:
        """It sends so many frames from now on, which may take so long; of nobody who is here: nothing."""
        found = self._joined.get(id)
        if found is not None:
            found.client = replace(found.client, fps=fps, within_ms=within_ms)

    def leave(self, id: str) -> PipelineClient | None:
        """It has gone; None: nobody of this id is here."""
        found = self._joined.pop(id, None)
        return None if found is None else found.client

    def saw(self, id: str | None, now_ns: int) -> bool:
        """A frame of it came; whether it is one of them."""
        found = None if id is None else self._joined.get(id)
        if found is not None:
            found.seen_ns = now_ns
        return found is not None

    def begins(self, id: str | None, now_ns: int) -> bool:
        """As `saw`; `ends` follows, until which it is not silent."""
        is_known = self.saw(id, now_ns)
        if id is not None and is_known:
            self._joined[id].under_way += 1
        return is_known

    def ends(self, id: str | None, now_ns: int) -> None:
        """A frame that began while it was one of them is over; it may have left meanwhile."""
        if id is not None and self.saw(id, now_ns):
            self._joined[id].under_way -= 1

    def silent(self, now_ns: int) -> list[PipelineClient]:
        """Those of which nothing was heard for too long: they have left."""
        gone = [one.client for one in self._joined.values() if one.is_silent(now_ns)]
        for client in gone:
            del self._joined[client.id]
        return gone

    def served(self, fps: float) -> frozenset[str]:
        """Ids of those that a plan for so many frames a second serves: the oldest ones."""
        found: list[str] = []
        left = fps * (1.0 + 1e-6)
        for one in self._joined.values():
            left -= one.client.fps
            if left < 0.0:
                break
            found.append(one.client.id)
        return frozenset(found)
