"""What systemd is told of the service: that it is ready, lives, needs longer, or stops; nothing where somebody else
started it.

One datagram a message, as `sd_notify(3)` has them; no library is needed for that.
"""

import os
import socket
from collections.abc import MutableMapping

_FEEDS = 3
"""In the time after which systemd takes the service for dead: one or two may come late."""


class Systemd:
    """The service manager that waits at `address`, or nobody. `watchdog_ns`: after so long without a sign of life it
    ends the service; None: it asks for none.
    """

    def __init__(self, address: str | None = None, watchdog_ns: int | None = None) -> None:
        self._address = address
        self._feed_ns = None if address is None or watchdog_ns is None else watchdog_ns // _FEEDS
        self._fed_ns: int | None = None

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> "Systemd":
        """As the environment of the service says; its words are taken out, for they are not for children."""
        address = environment.pop("NOTIFY_SOCKET", None)
        microseconds = environment.pop("WATCHDOG_USEC", "")
        is_ours = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        is_watched = is_ours and microseconds.isdigit() and int(microseconds) > 0
        return cls(address or None, int(microseconds) * 1000 if is_watched else None)

    def ready(self, status: str) -> None:
        """The service answers; `status` is a line for people."""
        self._tell(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """It ends what is under way."""
        self._tell("STOPPING=1\nSTATUS=answering what is under way")

    def extend(self, seconds: int, status: str) -> None:
        """The start needs up to so many seconds more, counted from now."""
        self._tell(f"EXTEND_TIMEOUT_USEC={seconds * 1_000_000}\nSTATUS={status}")

    def alive(self, now_ns: int) -> None:
        """A sign of life, when it is time for one."""
        if self._feed_ns is None or (self._fed_ns is not None and now_ns - self._fed_ns < self._feed_ns):
            return
        self._fed_ns = now_ns
        self._tell("WATCHDOG=1")

    def _tell(self, message: str) -> None:
        if self._address is None:
            return
        place = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                line.setblocking(False)
                line.sendto(message.encode(), place)
        except OSError:  # a manager that cannot be reached will say so itself, by ending the service
            return
