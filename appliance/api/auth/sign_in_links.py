"""Links that sign a browser in: a token each, good once and for ten minutes, for whoever has no key at hand.

Of a token only its SHA-256 is kept, in memory: a restart ends all of them. Event-loop thread only.
"""

import datetime
import hashlib
import secrets
from dataclasses import dataclass

from appliance.clock import Clock

GOOD_FOR = datetime.timedelta(minutes=10)
PER_KEY_MAX = 16
"""Of one key; for one more its oldest goes."""


@dataclass(frozen=True, slots=True)
class SignInLink:
    """One link. Times are UTC."""

    key_id: str
    until: datetime.datetime
    began_at: datetime.datetime | None
    """When the sign-in began that made it; None: the key itself did."""


class SignInLinks:
    """All of them, by digest of the token."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: dict[str, SignInLink] = {}

    def make(self, key_id: str, began_at: datetime.datetime | None = None) -> tuple[str, datetime.datetime]:
        """A new token for the browser of who has shown this key, and when it ends. `began_at`: when the sign-in began
        of who is signed in and shows no key.
        """
        now = self._clock.wall_now()
        self._links = {digest: one for digest, one in self._links.items() if one.until > now}
        same = [digest for digest, one in self._links.items() if one.key_id == key_id]
        for digest in same[: max(0, len(same) - PER_KEY_MAX + 1)]:
            del self._links[digest]
        token = secrets.token_urlsafe(32)
        self._links[_digest(token)] = SignInLink(key_id, now + GOOD_FOR, began_at)
        return token, now + GOOD_FOR

    def take(self, token: str) -> SignInLink | None:
        """What it stands for, once; None: for nothing, or no longer."""
        link = self._links.pop(_digest(token), None)
        return None if link is None or link.until <= self._clock.wall_now() else link


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
