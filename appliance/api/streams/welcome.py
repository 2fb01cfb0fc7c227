"""Whether the caller of a request that lasts may go on with it: asked every second while a stream is open, and of each
piece of a body.
"""

from collections.abc import Mapping
from typing import Any

from appliance.api.auth.browsers import cookie_of
from appliance.api.auth.keyring import KeyRing, Principal
from appliance.api.auth.sign_ins import SignIns
from appliance.api.box import ServingBox


class Welcome:
    """Of one request."""

    def __init__(self, keyring: KeyRing, sign_ins: SignIns, principal: Principal, cookie: str | None) -> None:
        """`cookie`: that of the page that opened it; None: it sent its key."""
        self._keyring = keyring
        self._sign_ins = sign_ins
        self._principal = principal
        self._cookie = cookie

    def holds(self, *, have_frames_come: bool) -> bool:
        """Whether the key is good, and the page signed in. Frames since the last look are a use of the sign-in, as
        requests are; an open stream alone is none.
        """
        return self._keyring.known(self._principal.key_id) is not None and self._is_signed_in(is_use=have_frames_come)

    def _is_signed_in(self, *, is_use: bool) -> bool:
        cookie, key_id = self._cookie, self._principal.key_id
        if cookie is None:
            return True
        if is_use:
            return self._sign_ins.key_of(cookie) == key_id
        return self._sign_ins.stands_for(cookie, key_id)


def welcome_of(box: ServingBox, scope: Mapping[str, Any], principal: Principal) -> Welcome:
    """Of a request of `principal`, who sent a key, or the cookie of a page."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    cookie = None if b"authorization" in headers else cookie_of(scope, headers)
    return Welcome(box.keyring, box.browsers.sign_ins, principal, cookie)
