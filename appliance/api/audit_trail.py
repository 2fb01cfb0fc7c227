"""The audit trail: every request that changes something under `/v1` leaves an entry before its answer goes out, and
refused sign-ins are counted.

Plain ASGI around the framework. What the store commits for a request (tenants, keys, models, applications, jobs) takes
its entry along, in the same transaction: the one is not there without the other. What is changed elsewhere (memory,
backups, simulations) has its entry afterwards; one that cannot be written then is logged. Devices' calls, pieces of
uploads and frames change nothing that an operator would look for, and pass by.
"""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from appliance.api.auth.keyring import KeyRing, Principal
from appliance.api.auth.refused_sign_ins import SIGN_IN
from appliance.api.box import RunningBox, ServingBox
from appliance.api.http.limits import ASGIApp, Message, Receive, Scope, Send
from appliance.domain.access import Role
from appliance.domain.audit import Actor, AuditRecord
from appliance.domain.errors import Unavailable
from appliance.log import get as get_log
from appliance.modelstore.store.audit_entry import AuditEntry, entry_of_request

_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OF_THE_BOX = ("/v1/backups", "/v1/restore", "/v1/housekeeping", "/v1/simulations")
_CALLS = re.compile(r"/v1/((applications|pipelines)/[^/]+/predict|sessions/[^/]+/frames)")
"""What is posted there changes nothing."""
_LEFT = "/v1/wall"
"""Path that a viewer deletes on leaving, which changes nothing."""
_WITH_SECRETS = (SIGN_IN, "/v1/notifications")
"""Paths whose bodies are not kept in the audit."""
_NOTE = "appliance.audit_note"
_CHANGE_BYTES_MAX = 4096
_ANSWER_BYTES_MAX = 64 * 1024
_PATH_MAX = 500
log = get_log("audit")


@dataclass(slots=True)
class _Note:
    """What is known of a request on its way; the route's dependencies fill it in."""

    actor: Principal | None = None
    sent: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)
    status: int = 0
    action: str = ""
    """Where no route says it."""


def record_of(
    box: ServingBox, scope: Scope, principal: Principal, action: str, sent: bytes, answered: bytes
) -> AuditRecord | None:
    """The entry of a request that is answered before there is a store, which is to write it then; None: as of a
    request that the framework answers, there shall be none.
    """
    return _record(scope, _Note(principal, bytearray(sent), bytearray(answered), action=action), box)


def note_actor(scope: MutableMapping[str, Any], principal: Principal) -> None:
    """A request is this caller's; of one that changes nothing nobody wants to know."""
    note: _Note | None = scope.get(_NOTE)
    if note is not None:
        note.actor = principal


class AuditTrail:
    """Wraps the framework's application; the state of each request has the box."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_change(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        note = scope[_NOTE] = _Note()
        entry = AuditEntry(lambda: _record(scope, note, scope["state"]["box"]))
        keeps_body = not scope["path"].startswith(_WITH_SECRETS) and _is_json(scope["headers"])

        async def hear() -> Message:
            message = await receive()
            if keeps_body and message["type"] == "http.request" and len(note.sent) <= _CHANGE_BYTES_MAX:
                note.sent += message.get("body", b"")
            return message

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                note.status = message["status"]
            elif message["type"] == "http.response.body":
                if len(note.answered) <= _ANSWER_BYTES_MAX:
                    note.answered += message.get("body", b"")
                if not message.get("more_body", False):
                    entry.close()
                    await _keep(scope, note, entry)
            await send(message)

        with entry_of_request(entry):
            await self._app(scope, hear, tell)


async def _keep(scope: Scope, note: _Note, entry: AuditEntry) -> None:
    box: RunningBox = scope["state"]["box"]
    if scope["path"] == SIGN_IN and scope["method"] == "POST" and note.status in (401, 403, 429):
        box.refused_sign_ins.add(_address(scope))
    record = _record(scope, note, box) if 200 <= note.status < 300 else None
    if record is None:
        return
    try:
        if entry.id is None:
            await box.store.audit.add([record])
        elif record.subject != entry.subject:
            await box.store.audit.complete(entry.id, record.subject)
    except Unavailable as error:
        what = "an entry of the audit is lost" if entry.id is None else "an entry of the audit lacks what was made"
        log.error(what, action=record.action, path=record.path, reason=str(error))


def _record(scope: Scope, note: _Note, box: ServingBox) -> AuditRecord | None:
    """As far as it is known: before the answer it lacks what was made. None: of a device, which changes nothing but its
    own session, and of nobody.
    """
    who = note.actor
    if who is None or who.role is Role.DEVICE:
        return None
    named: Mapping[str, Any] = scope.get("path_params", {})
    change = _document(note.sent, _CHANGE_BYTES_MAX)
    answer = _document(note.answered, _ANSWER_BYTES_MAX) or {}
    made = "" if "deleted" in answer else str(answer.get("name") or answer.get("id") or "")
    if not answer and change is not None and scope["method"] == "POST":
        made = str(change.get("name") or "")
    subject = "" if made in named.values() else made[:200]
    return AuditRecord(
        box.clock.wall_now(),
        _concerned(scope["path"], named.get("tenant") or made, who),
        note.action or str(getattr(scope.get("route"), "summary", None) or scope["method"]),
        scope["method"],
        scope["path"][:_PATH_MAX],
        subject,
        change,
        _actor(who, box.keyring),
        _address(scope),
    )


def _is_change(method: str, path: str) -> bool:
    if method not in _CHANGES or not path.startswith("/v1/"):
        return False
    if method == "POST":
        return _CALLS.fullmatch(path) is None
    return not (method == "PATCH" and path.startswith("/v1/uploads/")) and path != _LEFT


def _concerned(path: str, tenant: str, who: Principal) -> str:
    """Whose things a path is about; empty: the box's."""
    if path.startswith("/v1/tenants"):
        return tenant
    if path.startswith(_OF_THE_BOX) or (who.is_admin and path.startswith(SIGN_IN)):
        return ""
    return who.tenant


def _actor(who: Principal, keyring: KeyRing) -> Actor:
    record = keyring.record(who.key_id)
    if record is None:  # it has revoked itself
        return Actor(who.tenant, who.role, who.key_id)
    return Actor(record.tenant, record.role, record.id, record.label)


def _document(text: bytearray, bytes_max: int) -> dict[str, Any] | None:
    try:
        document = orjson.loads(text) if len(text) <= bytes_max else None
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _is_json(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-type" and value.startswith(b"application/json") for name, value in headers)


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
