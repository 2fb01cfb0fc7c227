"""Events: what happened, told to people, logs and tests."""

from typing import Protocol


class EventSink(Protocol):
    """Takes events for `/v1/events`, logs and tests; never blocks."""

    def emit(self, event: str, **facts: object) -> None: ...
