"""What a source of readings is to who asks it."""

from collections.abc import Mapping
from typing import Protocol

from appliance.domain.sensors import Reading


class Source(Protocol):
    """Part of the machine's sensors. Called by one thread; may block for as long as its hardware does."""

    def look_round(self) -> None:
        """Find out what is there; asked now and then, for drivers come and go."""
        ...

    def read(self) -> list[Reading]:
        """What each sensor says now, those that do not answer as unknown."""
        ...

    def throttled(self) -> Mapping[str, str]:
        """Devices that are throttled as of the last `read`, and why."""
        ...

    def close(self) -> None: ...
