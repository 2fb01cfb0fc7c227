"""Sign-ins: cookies of browsers, each of which stands for a key until it is idle, old or ended, or its key is gone.

Of a cookie only its SHA-256 is kept, as of a key. Event-loop thread only; who calls `unsaved` writes the file.
"""

import datetime
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace

from appliance.clock import Clock

IDLE_MAX = datetime.timedelta(hours=12)
AGE_MAX = datetime.timedelta(days=7)
PER_KEY_MAX = 32
"""Of one key; for one more the one that was idle longest goes."""
_SAVED_EVERY = datetime.timedelta(minutes=5)
"""A use later than that after the one that was saved is worth saving."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """One browser. Times are UTC."""

    sha256: str
    """Of the cookie, as hexadecimal digits."""
    key_id: str
    began_at: datetime.datetime
    used_at: datetime.datetime

    def is_over(self, now: datetime.datetime) -> bool:
        """Whether it ended by itself."""
        return now - self.used_at > IDLE_MAX or now - self.began_at > AGE_MAX


class SignIns:
    """All of them, by digest of the cookie."""

    def __init__(self, clock: Clock, kept: Iterable[SignIn] = ()) -> None:
        self._clock = clock
        self._by_digest = {one.sha256: one for one in kept}
        self._saved = dict(self._by_digest)

    def begin(self, key_id: str, began_at: datetime.datetime | None = None) -> str:
        """A new cookie for who has shown the key, or was let in at `began_at` by a sign-in, whose age it takes over."""
        now = self._clock.wall_now()
        self._sweep(now)
        same = sorted((one for one in self._by_digest.values() if one.key_id == key_id), key=lambda one: one.used_at)
        for one in same[: max(0, len(same) - PER_KEY_MAX + 1)]:
            del self._by_digest[one.sha256]
        cookie = secrets.token_urlsafe(32)
        digest = _digest(cookie)
        self._by_digest[digest] = SignIn(digest, key_id, began_at or now, now)
        return cookie

    def key_of(self, cookie: str) -> str | None:
        """Id of the key that the cookie stands for, which counts as a use; None: of none, or no longer."""
        found = self._by_digest.get(_digest(cookie))
        if found is None:
            return None
        now = self._clock.wall_now()
        if found.is_over(now):
            del self._by_digest[found.sha256]
            return None
        self._by_digest[found.sha256] = replace(found, used_at=now)
        return found.key_id

    def stands_for(self, cookie: str, key_id: str) -> bool:
        """Whether the cookie still stands for the key: a look, and no use."""
        found = self._by_digest.get(_digest(cookie))
        return found is not None and found.key_id == key_id and not found.is_over(self._clock.wall_now())

    def began_at(self, cookie: str) -> datetime.datetime | None:
        """When the key was shown; None: the cookie stands for nothing."""
        found = self._by_digest.get(_digest(cookie))
        return None if found is None else found.began_at

    def end(self, cookie: str) -> None:
        """It stands for nothing any more; one that does not is no error."""
        self._by_digest.pop(_digest(cookie), None)

    def end_of_key(self, key_id: str) -> None:
        """All that a key began: it is revoked."""
        for one in [one for one in self._by_digest.values() if one.key_id == key_id]:
            del self._by_digest[one.sha256]

    def unsaved(self) -> tuple[SignIn, ...] | None:
        """All of them, where the file lacks something; None: it does not. They count as saved from now on."""
        self._sweep(self._clock.wall_now())
        if self._saved.keys() == self._by_digest.keys() and all(
            one.used_at - self._saved[digest].used_at <= _SAVED_EVERY for digest, one in self._by_digest.items()
        ):
            return None
        self._saved = dict(self._by_digest)
        return tuple(self._saved.values())

    def _sweep(self, now: datetime.datetime) -> None:
        for one in [one for one in self._by_digest.values() if one.is_over(now)]:
            del self._by_digest[one.sha256]


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).hexdigest()
