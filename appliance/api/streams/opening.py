"""The handshake of a stream: who opens it, for which session, and who had it before."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from appliance.api.auth.browsers import cookie_of
from appliance.api.auth.callers import caller_of
from appliance.api.auth.keyring import Principal
from appliance.api.box import ServingBox
from appliance.api.http.limits import Scope
from appliance.api.http.problems import problem_response
from appliance.api.http.websocket import Owner, WebSocket
from appliance.api.streams.sessions import session_of
from appliance.api.streams.stream import Stream
from appliance.api.streams.target import id_of
from appliance.api.streams.welcome import welcome_of
from appliance.domain.errors import ApplianceError, BadInput, Forbidden, ForeignOrigin, UnknownSession
from appliance.domain.states import SessionState
from appliance.wire.stream import HEAD_BYTES_MAX, SEEN


class Streams:
    """The open streams of a box, at most one for each session."""

    def __init__(self, box: ServingBox) -> None:
        self._box = box
        self._open: dict[str, Stream] = {}

    @staticmethod
    def socket(transport: Any, head: bytes, owner: Owner) -> WebSocket:
        """What speaks on a connection from its handshake on."""
        return WebSocket(transport, head, owner)

    async def serve(self, scope: Scope, socket: WebSocket) -> None:
        """Answer a handshake, and be there until the stream behind it has ended."""
        box = self._box
        headers = dict(scope["headers"])
        try:
            _check_origin(headers)
            principal = _caller(box, scope, headers)
            live = session_of(box, principal, id_of(scope["path"]))
            if live.state is SessionState.ENDED:
                raise UnknownSession(name=live.session.id)
            seen = _seen(scope["query_string"])
        except ApplianceError as error:
            socket.refuse(*problem_response(error, scope["path"]))
            return

        before = self._open.get(live.session.id)
        stream = Stream(
            box.clock,
            box.sessions,
            live,
            socket,
            in_flight=box.in_flight,
            wall=box.wall,
            frame_bytes_max=box.frame_bytes_max,
            accept=headers.get(b"accept", b"").decode("latin-1"),
            welcome=welcome_of(box, scope, principal),
            present=lambda: self._open.get(live.session.id),
        )
        if not socket.accept(stream, HEAD_BYTES_MAX):
            return
        self._open[live.session.id] = stream
        if before is not None:
            before.replace()
        try:
            await stream.run(seen)
        finally:
            if self._open.get(live.session.id) is stream:
                del self._open[live.session.id]


def _caller(box: ServingBox, scope: Scope, headers: Mapping[bytes, bytes]) -> Principal:
    """Return the caller by the key that was sent, else by the cookie of a page of the box: a browser sends the cookie
    with the handshakes of any page, and names the page in `Origin`. Raises: as `Browsers.caller`.
    """
    if b"authorization" in headers or cookie_of(scope, headers) is None:
        return caller_of(box.keyring, scope, headers)
    if b"origin" not in headers:
        raise ForeignOrigin(reason="the handshake names no origin")
    return box.browsers.caller(scope)


def _check_origin(headers: Mapping[bytes, bytes]) -> None:
    """A page may only speak for who reads it where it is the box's own. Raises: Forbidden."""
    origin = headers.get(b"origin")
    if origin is None:
        return
    try:
        name = urlsplit(origin).netloc.lower()
    except ValueError:  # half an address, as in `http://[`
        name = None
    if name != headers.get(b"host", b"").lower():
        raise Forbidden(action="open a stream from a page of another origin")


def _seen(query: bytes) -> int | None:
    """The frame up to which the device knows all ends. Raises: BadInput."""
    values = parse_qs(query.decode("latin-1")).get(SEEN, [])
    if not values:
        return None
    if len(values) > 1 or not re.fullmatch("[0-9]{1,16}", values[0]):
        raise BadInput(reason=f"{SEEN}: must be the number of a frame")
    return int(values[0])
