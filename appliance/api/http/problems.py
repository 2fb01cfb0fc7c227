"""The one place where an error becomes an HTTP answer: RFC 9457 problem documents.

A class of `domain.errors` says its status and title itself. Works for raw ASGI too (`problem_response`, `status_of`),
so that `/v2`, which has an error shape of its own, agrees on the status.
"""

import errno
import json
import math
from collections.abc import Mapping
from typing import NamedTuple

from appliance.api.http.packed_body import READ
from appliance.domain import errors as e
from appliance.wire.paths import without_paths
from appliance.wire.problem import PROBLEMS_PATH, RESERVED

CONTENT_TYPE = "application/problem+json"
TEXT_MAX = 2000
RETRY_AFTER_S_MAX = 86_400
"""A day: with the smallest of rates the time until the next request has no end."""


class Row(NamedTuple):
    """HTTP status and title of a kind of problem."""

    status: int
    title: str


def status_of(exc: BaseException) -> int:
    """HTTP status of any exception; 500 for what is not ours."""
    return exc.answer()[0] if isinstance(exc, e.ApplianceError) else 500


def headers_of(exc: BaseException) -> dict[str, str]:
    """Headers that belong to the error whatever the shape of its body: Retry-After, WWW-Authenticate, what is read."""
    headers = {}
    retry_after_s = getattr(exc, "retry_after_s", None)
    if retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(min(retry_after_s, RETRY_AFTER_S_MAX))))
    if status_of(exc) == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(exc, e.BadEncoding):
        headers["Accept-Encoding"] = ", ".join(READ)
    return headers


def document(slug: str, row: Row, detail: str, instance: str, facts: Mapping[str, object] | None = None) -> bytes:
    """A problem document as JSON bytes; facts that JSON does not know are written as text."""
    members: dict[str, object] = {"type": PROBLEMS_PATH + slug, "title": row.title, "status": row.status}
    members |= {"detail": told(detail)}
    if instance:
        members["instance"] = instance
    members.update((name, told(value)) for name, value in (facts or {}).items() if name not in RESERVED)
    return json.dumps(members, default=str, ensure_ascii=False).encode("utf-8", "replace")


def told(value: object) -> object:
    """Text of an error as callers read it: without paths of the machine, and, as it may quote what the caller sent, of
    a length that a person reads; anything else as it is.
    """
    return without_paths(value[:TEXT_MAX]) if isinstance(value, str) else value


def problem_response(exc: BaseException, instance: str = "") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an error; one that is not ours tells nothing of the inside."""
    if isinstance(exc, OSError) and exc.errno in (errno.EMFILE, errno.ENFILE):
        exc = e.OutOfFiles()
    if isinstance(exc, e.ApplianceError):
        row = Row(*exc.answer())
        body = document(exc.slug, row, str(exc), instance, exc.facts())
        return row.status, {"Content-Type": CONTENT_TYPE, **headers_of(exc)}, body
    detail = "something went wrong inside the box; its log has the details under this request id"
    return 500, {"Content-Type": CONTENT_TYPE}, plain_problem("internal-error", detail, instance)[1]


OTHERS: Mapping[str, Row] = {
    "no-such-path": Row(404, "No such path"),
    "method-not-allowed": Row(405, "Not with this method"),
    "bad-request": Row(400, "The request cannot be read"),
    "invalid-request": Row(422, "A field is missing or wrong"),
    "request-timeout": Row(408, "The request came too slowly"),
    "expectation-failed": Row(417, "What the request expects cannot be met"),
    "upgrade-required": Row(426, "Only as a WebSocket"),
    "head-too-large": Row(431, "The head of the request is too large"),
    "internal-error": Row(500, "Internal error"),
    "not-implemented": Row(501, "The transfer coding is not read"),
}
"""Problems of HTTP itself, which the domain does not know."""


def plain_problem(
    slug: str, detail: str, instance: str, facts: Mapping[str, object] | None = None
) -> tuple[int, bytes]:
    """Status and body of one of `OTHERS`."""
    return OTHERS[slug].status, document(slug, OTHERS[slug], detail, instance, facts)


def all_problems() -> dict[str, Row]:
    """Every slug that can stand in a `type`, with its row; for the pages under `/problems/`."""
    return {slug: Row(error.status, error.title) for slug, error in e.ERRORS.items()} | dict(OTHERS)
