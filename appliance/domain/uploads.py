"""Uploads that arrive in pieces."""

import datetime
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """A file on its way in. The next piece goes on at `offset` bytes, which are safely on disk."""

    id: str
    tenant: str
    offset: int
    length: int | None
    """Bytes announced at the start; None: not known, `finish` ends it."""
    sha256: str | None
    """Hex digest announced at the start; checked at the end."""
    file_name: str
    created_at: datetime.datetime
    updated_at: datetime.datetime

    @property
    def is_complete(self) -> bool:
        """Whether every announced byte is there."""
        return self.length is None or self.offset == self.length
