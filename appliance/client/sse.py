"""Reading server-sent events."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event as it was sent."""

    event: str
    data: str
    id: str | None = None


def events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Events from the lines of a stream; comments (heartbeats) are passed over."""
    event, id, data = "message", None, list[str]()
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(event, "\n".join(data), id)
            event, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            event = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            id = value
