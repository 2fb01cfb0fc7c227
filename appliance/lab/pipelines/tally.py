"""What came of the frames of one pipeline, as far as the box does not count it."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """`sent`, `ended`: frames that came to the box, of clients, devices and everybody else. `latencies_ns`: of those
    that were answered, in the box. `joined`, `refused`: clients.
    """

    sent: int = 0
    ended: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    joined: int = 0
    refused: int = 0
