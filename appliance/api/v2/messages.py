"""Bodies and answers of `/v2`: read whole within a limit, and written in the protocol's own shapes, errors too."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from appliance.api.http.exchange import BLANKS
from appliance.api.http.large_body import LargeBody
from appliance.api.http.limits import HeldBody, Message, Receive
from appliance.api.http.packed_body import HEADER as PACKING
from appliance.api.http.problems import headers_of, status_of, told
from appliance.api.v2.tensors import Body
from appliance.domain.errors import ApplianceError, BadRegion, BadTensor, ModelUnavailable, RunRefused, TooLarge
from appliance.tasks import strict_json
from appliance.wire.problem import PROBLEMS_PATH

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers and body."""
JSON = (b"content-type", b"application/json")
_DIGITS_MAX = 18
BINARY = (b"content-type", b"application/octet-stream")


def content_length(headers: Mapping[bytes, bytes]) -> int:
    """As announced; 0 where nothing is, or nonsense, or of a body that comes packed."""
    return 0 if PACKING in headers else _number(headers.get(b"content-length", b"")) or 0


def json_length(headers: Mapping[bytes, bytes]) -> int | None:
    """Bytes of JSON before the binary tensors; None: there are none. Raises: BadTensor."""
    text = headers.get(b"inference-header-content-length")
    if text is None:
        return None
    length = _number(text)
    if length is None:
        raise BadTensor(reason="Inference-Header-Content-Length must be a whole number of at most 18 digits")
    return length


@lru_cache(64)
def _number(text: bytes) -> int | None:
    """A whole number ≥ 0 in a header; None where it is none, or none that a body could have. Nearly always one that was
    asked for before.
    """
    digits = text.strip(BLANKS)
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else None


async def whole_body(receive: Receive, length: int, limit: int, held: HeldBody, ahead: int = 0) -> Body:
    """The whole body, refused as soon as it is known to be too large, by its announced `length` or as it comes, or not
    to fit beside others'.

    A body in one piece is not copied. One of several is aligned for tensors behind its first `ahead` bytes.
    """
    if length > limit:
        raise TooLarge(what="the request body", limit_bytes=limit)
    held.announce(length)
    message = await _piece(receive)
    first: Body = message.get("body", b"")
    if not message.get("more_body"):
        held.grow(len(first))
        return first
    held.grow(len(first))
    whole = LargeBody(ahead)
    whole.append(first)
    del first
    while message.get("more_body"):
        message = await _piece(receive)
        piece: Body = message.get("body", b"")
        held.grow(len(whole) + len(piece))
        whole.append(piece)
        if len(whole) > limit:
            raise TooLarge(what="the request body", limit_bytes=limit)
    return whole.view()


async def _piece(receive: Receive) -> Message:
    """The next message of a body; before the first one the connection may be closed, too."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise BadTensor(reason="the connection closed inside the body")
    return message


def parameters_of(body: Body) -> Mapping[str, Any]:
    """A body of JSON, where there is one. Raises: BadTensor."""
    if not body:
        return {}
    try:
        parsed = strict_json.read(body)
    except json.JSONDecodeError as error:
        raise BadTensor(reason=f"the JSON of the request cannot be read: {error}") from None
    return parsed if isinstance(parsed, dict) else {}


def json_answer(value: Any, status: int = 200) -> Answer:
    """`value`: what becomes JSON, or bytes that are it already."""
    return status, [JSON], value if isinstance(value, bytes) else _json(value)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def not_allowed(methods: Sequence[str]) -> Answer:
    """405: the path is there, and can be asked with `methods`."""
    allowed = ", ".join(methods)
    headers = [JSON, (b"problem-type", f"{PROBLEMS_PATH}method-not-allowed".encode()), (b"allow", allowed.encode())]
    return 405, headers, json.dumps({"error": f"use {allowed}"}).encode()


def _type_of(error: BaseException) -> bytes:
    """The `type` that the same error has under `/v1`: the protocol's body has no place for it."""
    slug = error.slug if isinstance(error, ApplianceError) else "internal-error"
    return f"{PROBLEMS_PATH}{slug}".encode()


def error_answer(error: BaseException) -> Answer:
    """Status, headers and sentence of any error; one that is not ours tells nothing of the inside."""
    status = 400 if isinstance(error, ModelUnavailable | BadTensor | BadRegion | RunRefused) else status_of(error)
    text = (
        str(error)
        if isinstance(error, ApplianceError)
        else "something went wrong inside the box; its log has the details"
    )
    headers = [
        JSON,
        (b"problem-type", _type_of(error)),
        *((name.lower().encode(), value.encode()) for name, value in headers_of(error).items()),
    ]
    return status, headers, json.dumps({"error": told(text)}).encode()
