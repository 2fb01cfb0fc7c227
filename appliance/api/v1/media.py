"""What `predict` takes and gives: the bodies that it documents, and how one is read."""

from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from appliance.api.http.large_body import LargeBody
from appliance.domain.errors import BadMedia
from appliance.tasks.base import Media
from appliance.tasks.pictures import kind_of

_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
BODIES: dict[str, Any] = {
    "image/jpeg": _BINARY,
    "image/png": _BINARY,
    "image/webp": _BINARY,
    "audio/wav": _BINARY,
    "text/plain": {"schema": {"type": "string"}, "example": "a dog on the beach"},
    "application/json": {
        "schema": {"type": "object"},
        "examples": {
            "text": {"summary": "text-embedding", "value": {"texts": ["a dog on the beach", "two cats"]}},
            "tensor": {"summary": "tensor", "value": {"inputs": {"x": [[1.0, 2.0, 3.0]]}}},
        },
    },
    "multipart/form-data": {
        "schema": {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}
    },
}
PICTURES: dict[str, Any] = {kind: BODIES[kind] for kind in ("image/jpeg", "image/png", "image/webp")}
ANSWER = {
    "faces": [{"box": [71.2, 40.8, 148.9, 139.5], "score": 0.91}],
    "application": "door",
    "model": "centerface",
    "variant": "int8",
    "accuracy": 0.961,
    "accuracy_metric": "f1@0.5 against fp32",
    "accuracy_meaning": "agreement with fp32",
    "evidence": "samples",
    "warnings": [],
    "warm": True,
    "timings_ms": {"decode": 3.1, "queue": 0.1, "load": 0, "wake": 0, "compute": 9.7, "encode": 0.6, "total": 13.9},
    "request_id": "b2f1c0de-17",
}


async def media_of(request: Request) -> Media:
    """Raises: BadMedia when there is nothing."""
    content_type = request.headers.get("content-type", "")
    accept = request.headers.get("accept", "")
    if content_type.startswith("multipart/form-data"):
        try:
            async with request.form(max_files=1, max_fields=8) as form:
                files = [value for value in form.values() if isinstance(value, UploadFile)]
                if not files:
                    raise BadMedia(reason="the form holds no file")
                return _filled(await files[0].read(), files[0].content_type or "", accept)
        except HTTPException as error:  # what the framework makes of a broken form
            raise BadMedia(reason=f"the form is broken: {error.detail}") from error
    return _filled(await _whole_body(request), content_type, accept)


async def _whole_body(request: Request) -> bytes:
    """As the framework's, but large ones leave no holes in the heap."""
    first = b""
    whole: LargeBody | None = None
    async for piece in request.stream():
        if not first:
            first = piece
        elif piece:
            if whole is None:
                whole = LargeBody(0)
                whole.append(first)
            whole.append(piece)
    return first if whole is None else bytes(whole.view())


def answer_type(answer: bytes) -> str:
    """The media type of what `predict` answers."""
    return kind_of(answer) or "application/json"


def _filled(body: bytes, content_type: str, accept: str) -> Media:
    if not body:
        raise BadMedia(reason="the body is empty; send the picture, sound or text itself")
    return Media(body, content_type, accept)
