"""Who gets in: keys as they are stored, never the key itself."""

import datetime
from dataclasses import dataclass
from enum import StrEnum

EXPIRES_SOON = datetime.timedelta(days=7)
"""Time before its end in which a key needs a successor, if nine tenths of its whole time are over, too."""


class Role(StrEnum):
    """What a key may do."""

    ADMIN = "admin"
    """Everything on the box, for every tenant."""
    TENANT = "tenant"
    """Everything of one tenant."""
    DEVICE = "device"
    """Call the applications it names, nothing else."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key: the SHA-256 of its secret and what it opens. Times are UTC."""

    id: str
    tenant: str
    role: Role
    sha256: bytes
    created_at: datetime.datetime
    applications: tuple[str, ...] = ()
    """Names of applications a device key may call; empty, with `pipelines`: all that its tenant sees."""
    expires_at: datetime.datetime | None = None
    label: str = ""
    """For a person: where the key is used."""
    pipelines: tuple[str, ...] = ()
    """Names of pipelines that it may call; empty, with `applications`: all of its tenant."""

    def needs_successor(self, now: datetime.datetime) -> bool:
        """Return whether the key expires within `EXPIRES_SOON` and the last tenth of its time, so that a key which was
        made for a day is no trouble all that day.
        """
        if self.expires_at is None:
            return False
        left = self.expires_at - now
        return left < EXPIRES_SOON and left < (self.expires_at - self.created_at) / 10
