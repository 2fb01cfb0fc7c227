"""The entry that a request leaves in the audit: written in the transaction of the first thing that it changes, so that
there is no change without it, whatever happens after.

Whoever takes requests puts an entry into the context of one (`entry_of_request`); `Records` finds it there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from appliance.domain.audit import AuditRecord

_CURRENT: ContextVar["AuditEntry | None"] = ContextVar("audit entry", default=None)


class AuditEntry:
    """Event-loop thread only. `record` tells what is known of the request by now; None: it shall leave nothing."""

    def __init__(self, record: Callable[[], AuditRecord | None]) -> None:
        self._record = record
        self._is_under_way = False
        self._is_closed = False
        self._written: AuditRecord | None = None
        self.id: int | None = None
        """Of its row, once that is committed."""

    @property
    def subject(self) -> str:
        """What was made, as it is written."""
        return "" if self._written is None else self._written.subject

    def begin(self) -> AuditRecord | None:
        """What the next transaction shall write; None: nothing, or another one does or has. Then comes `end`."""
        if self._is_closed or self._is_under_way or self.id is not None:
            return None
        self._written = record = self._record()
        self._is_under_way = record is not None
        return record

    def end(self, id: int | None) -> None:
        """The transaction is over; None: it was rolled back."""
        self._is_under_way = False
        self.id = id

    def close(self) -> None:
        """The request is answered: what goes on in the background is none of it."""
        self._is_closed = True


def current_entry() -> AuditEntry | None:
    """Of the request that is being answered here."""
    return _CURRENT.get()


@contextmanager
def entry_of_request(entry: AuditEntry) -> Iterator[None]:
    """What is changed within is the request's."""
    token = _CURRENT.set(entry)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        entry.close()
