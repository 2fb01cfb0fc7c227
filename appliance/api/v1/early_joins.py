"""Early answers to `POST /v1/sessions`, until the web framework is imported.

The import takes seconds, for which a device that comes right after a start would otherwise wait. Nothing here imports
the framework. A request that is not plain goes to the framework, which answers it.
"""

import json
from collections.abc import Callable, Sequence

from pydantic import ValidationError

from appliance.api.audit_trail import record_of
from appliance.api.auth.keyring import Principal
from appliance.api.box import ServingBox
from appliance.api.http.limits import PRINCIPAL, Message, Receive, Scope, Send
from appliance.api.streams.shown import JOIN, join, shape_of
from appliance.domain.audit import AuditRecord
from appliance.tasks import strict_json
from appliance.wire.sessions import SessionOrder

BYTES_MAX = 16 * 1024
"""Bytes at most of a body that is read on the event loop."""


class EarlyJoins:
    """Answers to joins before the framework is there. Event-loop thread only."""

    def __init__(self, box: ServingBox, later: Callable[[AuditRecord], None]) -> None:
        """Take the box, and `later`, which has an entry written in the audit once there is a store."""
        self._box = box
        self._later = later

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Answer a join that is a plain order, and return None; `scope` has its caller.

        Do not answer any other request. Return a `Receive` instead, from which the framework reads the body from its
        beginning.

        Raises: what `Sessions.join` raises, UnknownApplication, UnknownPipeline; what `receive` raises.
        """
        read = await _read(receive)
        sent = b"".join(message.get("body", b"") for message in read)
        order = _order(scope, read, sent)
        if order is None:
            return _from_the_beginning(read, receive)
        principal: Principal = scope[PRINCIPAL]
        answer = shape_of(self._box, await join(self._box, principal, order)).model_dump_json().encode()
        if (record := record_of(self._box, scope, principal, JOIN, sent, answer)) is not None:
            self._later(record)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
        return None


async def _read(receive: Receive) -> list[Message]:
    """Return the messages of a body, up to where it is known to be too large, or its caller has left."""
    read = [await receive()]
    count = len(read[-1].get("body", b""))
    while read[-1].get("more_body", False) and count <= BYTES_MAX:
        read.append(await receive())
        count += len(read[-1].get("body", b""))
    return read


def _order(scope: Scope, read: Sequence[Message], sent: bytes) -> SessionOrder | None:
    """Return the order that a request states; None where the request is not plain.

    It is not plain where the body is of another type, too large or faulty, or where the caller has left.
    """
    kind = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json" or len(sent) > BYTES_MAX:
        return None
    if any(message["type"] != "http.request" for message in read):  # its caller has left
        return None
    try:
        return SessionOrder.model_validate(strict_json.read(sent))
    except (json.JSONDecodeError, ValidationError):
        return None


def _from_the_beginning(read: Sequence[Message], receive: Receive) -> Receive:
    left = list(read)

    async def again() -> Message:
        return left.pop(0) if left else await receive()

    return again
