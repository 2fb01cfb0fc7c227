"""Links that sign a browser in: a token each, good once and for ten minutes, for whoever has no key at hand.

Of a token only its SHA-256 is kept, in memory: a restart ends all of them. Event-loop thread only.
"""

import datetime
import hashlib
import secrets

from appliance.clock import Clock

GOOD_FOR = datetime.timedelta(minutes=10)
LINKS_MAX = 64
"""For one more the oldest goes."""


class SignInLinks:
    """Tokens by digest, each with the key that it stands for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: dict[str, tuple[str, datetime.datetime]] = {}

    def make(self, key_id: str) -> tuple[str, datetime.datetime]:
        """A new token for the browser of who has shown this key, and when it ends."""
        now = self._clock.wall_now()
        self._links = {digest: one for digest, one in self._links.items() if one[1] > now}
        while len(self._links) >= LINKS_MAX:
            del self._links[next(iter(self._links))]
        token = secrets.token_urlsafe(32)
        self._links[_digest(token)] = (key_id, now + GOOD_FOR)
        return token, now + GOOD_FOR

    def take(self, token: str) -> str | None:
        """Id of the key that it stands for, once; None: of none, or no longer."""
        key_id, until = self._links.pop(_digest(token), (None, None))
        return None if until is None or until <= self._clock.wall_now() else key_id


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
