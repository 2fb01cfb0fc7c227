"""Messages to receivers, and the HTTP request that carries a message to each kind of receiver."""

import base64
import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.domain.health.conditions import Severity, worst
from appliance.domain.notifications.briefing import ChangeKind, ConditionChange
from appliance.domain.notifications.receivers import Destination, Receiver, ReceiverKind

CHANGES_MAX = 20
"""Most conditions that a message names."""
_TITLE_MAX = 150
_ROW_MAX = 300
_TEXT_MAX = 3500
"""Characters of a text; ntfy turns longer texts into files."""
_WORDS = {
    ChangeKind.BEGAN: "Began: ",
    ChangeKind.WORSE: "Has become worse: ",
    ChangeKind.ENDED: "Ended: ",
    ChangeKind.PASSED: "Began and ended: ",
}
_PRIORITIES = {Severity.BAD: ("4", 8), Severity.WARN: ("3", 5), Severity.GOOD: ("2", 2)}
"""Severity → priority in ntfy and in Gotify."""
_TAGS = {Severity.BAD: "rotating_light", Severity.WARN: "warning", Severity.GOOD: "white_check_mark"}


@dataclass(frozen=True, slots=True)
class Message:
    """Content of a message for all kinds of receivers."""

    title: str
    text: str
    severity: Severity
    """Severity of the worst condition that began or became worse; good where conditions have only ended."""
    document: Mapping[str, Any]
    """JSON document for programs."""


@dataclass(frozen=True, slots=True)
class Post:
    """HTTP request that carries a message to a receiver."""

    destination: Destination
    headers: Mapping[str, str]
    body: bytes


def message_of(box: str, changes: Sequence[ConditionChange], now: datetime.datetime) -> Message:
    """Return the message that names these changes at the box `box`."""
    first = f"{_WORDS[changes[0].kind]}{changes[0].condition.text}"
    more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
    severity = worst([one.condition.severity for one in changes if one.kind in (ChangeKind.BEGAN, ChangeKind.WORSE)])
    document = {
        "conditions": [_document(one) for one in changes[:CHANGES_MAX]],
        "conditions_in_all": len(changes),
    }
    return _message(box, "conditions changed", f"{first}{more}", _text(changes), severity, now, document)


def trial_message_of(box: str, now: datetime.datetime) -> Message:
    """Return a test message."""
    text = "This is a test message. Conditions that begin and end will be told here."
    return _message(box, "test", "Test message", text, Severity.GOOD, now, {"conditions": []})


def post_of(receiver: Receiver, message: Message) -> Post:
    """Return the HTTP request that carries the message to the receiver."""
    destination = receiver.destination
    bearer = {"Authorization": f"Bearer {receiver.token}"} if receiver.token else {}
    priority, gotify_priority = _PRIORITIES[message.severity]
    if receiver.kind is ReceiverKind.NTFY:
        shown = {"Title": _header(message.title), "Priority": priority, "Tags": _TAGS[message.severity]}
        headers = {"Content-Type": "text/plain; charset=utf-8", **shown, **bearer}
        return Post(destination, headers, message.text.encode())
    json_type = {"Content-Type": "application/json"}
    if receiver.kind is ReceiverKind.GOTIFY:
        path = destination.path.rstrip("/").removesuffix("/message")
        body = {"title": message.title, "message": message.text, "priority": gotify_priority}
        headers = {**json_type, "X-Gotify-Key": receiver.token}
        return Post(destination._replace(path=f"{path}/message"), headers, json.dumps(body).encode())
    return Post(destination, {**json_type, **bearer}, json.dumps(message.document).encode())


def _message(
    box: str, event: str, title: str, text: str, severity: Severity, now: datetime.datetime, document: dict[str, Any]
) -> Message:
    shown = _cut(f"{box}: {title}", _TITLE_MAX)
    known = {"box": box, "at": now.isoformat(), "severity": severity.value, "title": shown, "text": text}
    return Message(shown, text, severity, {"event": event, **known, **document})


def _text(changes: Sequence[ConditionChange]) -> str:
    rows: list[str] = []
    for one in changes[:CHANGES_MAX]:
        row = "\n".join(_lines(one))
        if sum(map(len, rows)) + len(row) > _TEXT_MAX:
            break
        rows.append(row)
    if len(changes) > len(rows):
        rows.append(f"And {len(changes) - len(rows)} more: see Health on the pages of the box, or 'appliance health'.")
    return "\n\n".join(rows)


def _lines(one: ConditionChange) -> list[str]:
    often = f" ({one.times} times)" if one.times > 1 else ""
    said = [f"{_WORDS[one.kind]}{one.condition.text}{often}"]
    if one.kind in (ChangeKind.BEGAN, ChangeKind.WORSE):
        said += [line for line in (one.condition.detail, one.condition.action) if line]
    return [_cut(line, _ROW_MAX) for line in said]


def _document(one: ConditionChange) -> dict[str, Any]:
    condition, subject = one.condition, one.condition.subject
    return {
        "change": one.kind.value,
        "times": one.times,
        "id": condition.trouble.value,
        "severity": condition.severity.value,
        "subject": {"kind": subject.kind.value, "name": subject.name, "tenant": subject.tenant},
        "text": condition.text,
        "detail": condition.detail,
        "action": condition.action,
        "since": condition.since.isoformat(),
    }


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _header(text: str) -> str:
    """Return text for a header; text that is not ASCII is encoded by RFC 2047, which ntfy decodes."""
    line = " ".join(text.split())
    return line if line.isascii() and line.isprintable() else f"=?UTF-8?B?{base64.b64encode(line.encode()).decode()}?="
