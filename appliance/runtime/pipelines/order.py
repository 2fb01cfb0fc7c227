"""The order of a client's frames at stages that keep it (SC-02): a frame begins there when those before are through.

Frames are in the order of their numbers, where the client gives some, else of their arrival. A frame whose number comes
after a higher one has begun is too late for the stage. Event-loop thread only.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

_CLIENTS_MAX = 256
"""Of one pipeline, whose numbers are remembered; those that sent last."""


@dataclass(slots=True, eq=False)
class _Client:
    places: "list[Place]" = field(default_factory=list)
    """Of its frames under way, in their order."""
    begun: dict[str, int] = field(default_factory=dict)
    """Stage → the highest number of a frame that has begun there."""


@dataclass(slots=True, eq=False)
class Place:
    """Of one frame among those of its client."""

    _client: _Client
    number: int | None
    _wake: Callable[[], None]
    """Its turn may have come."""
    _through: set[str] = field(default_factory=set)

    def is_late(self, stage: str) -> bool:
        """Whether a frame that comes after it has begun there."""
        return self.number is not None and self._client.begun.get(stage, -1) > self.number

    def is_turn(self, stage: str) -> bool:
        """Whether all frames before it are through."""
        for other in self._client.places:
            if other is self:
                return True
            if stage not in other._through:
                return False
        return True

    def begin(self, stage: str) -> None:
        """It begins there: frames that come before it are too late from now on."""
        if self.number is not None:
            self._client.begun[stage] = max(self.number, self._client.begun.get(stage, -1))

    def through(self, stage: str) -> None:
        """Nothing more of it will run there."""
        if stage not in self._through:
            self._through.add(stage)
            self._tell()

    def leave(self) -> None:
        """The frame is over."""
        if self in self._client.places:
            self._client.places.remove(self)
            self._tell()

    def _tell(self) -> None:
        for other in list(self._client.places):
            if other is not self:
                other._wake()


class FrameOrder:
    """Of all clients of one pipeline."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def enter(self, client: str, number: int | None, wake: Callable[[], None]) -> Place:
        """A frame has come; `leave` must follow. Empty `client`: of nobody who has joined, and of whom there may be
        many: their numbers say nothing, and frames are in the order of their arrival.
        """
        number = number if client else None
        found = self._clients.setdefault(client, _Client())
        self._clients.move_to_end(client)
        place = Place(found, number, wake)
        at = len(found.places)
        while number is not None and at and (found.places[at - 1].number or -1) > number:
            at -= 1
        found.places.insert(at, place)
        while len(self._clients) > _CLIENTS_MAX and not next(iter(self._clients.values())).places:
            self._clients.popitem(last=False)
        return place
