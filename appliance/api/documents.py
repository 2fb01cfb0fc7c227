"""The OpenAPI document, the page that shows it, and a page for each kind of error.

All of it offline: no asset comes from elsewhere.

Swagger UI's files come with the package `fastapi-swagger`, of which nothing else is used.
"""

import asyncio
import gzip
import html
import json
import threading
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response

from appliance.api.http.problems import CONTENT_TYPE, Row, all_problems, plain_problem
from appliance.api.v2.documented import V2_PATHS
from appliance.domain.errors import ERRORS, ApplianceError, OutOfMemory
from appliance.wire.problem import PROBLEMS_PATH, RESERVED

ASSETS = {"swagger-ui.js": "swagger-ui-bundle.js", "swagger-ui.css": "swagger-ui.css"}
MEDIA_TYPES = {"js": "text/javascript", "css": "text/css"}
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src "
    "'self'; "
    "frame-ancestors 'none'"
)
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Edge appliance: API</title><link rel="stylesheet" href="docs/swagger-ui.css"><link rel="icon" href="data:,">
</head><body><div id="api"><noscript>The document itself: <a href="openapi.json">openapi.json</a></noscript></div>
<script src="docs/swagger-ui.js"></script><script type="module" src="docs/start.js"></script></body></html>
"""
START = """const root = new URL(".", location.href).pathname.replace(/.$/, "");
const spec = await (await fetch("openapi.json")).json();
SwaggerUIBundle({
  spec: { ...spec, servers: [{ url: root || "/" }] }, dom_id: "#api", deepLinking: true, displayRequestDuration: true,
  filter: true, persistAuthorization: false, tryItOutEnabled: true, validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis], layout: "BaseLayout",
});
"""
PROBLEM_SCHEMA = {
    "title": "Problem",
    "description": "RFC 9457. The facts of the error are further members.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {
            "type": "string",
            "description": "Stable name of the kind of error, and the address of a page about it.",
        },
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One sentence for a person."},
        "instance": {"type": "string"},
    },
    "additionalProperties": True,
}


def register(app: FastAPI) -> None:
    """Hang the pages into the service; they need no key, for they tell nothing of the box but its version."""
    app.add_api_route("/openapi.json", _openapi, include_in_schema=False)
    app.add_api_route("/docs", _page, include_in_schema=False)
    app.add_api_route("/docs/{asset}", _asset, include_in_schema=False)
    app.add_api_route(PROBLEMS_PATH.rstrip("/"), _problems, include_in_schema=False)
    app.add_api_route(PROBLEMS_PATH + "{slug}", _problem, include_in_schema=False)


def openapi(app: FastAPI) -> dict[str, Any]:
    """The document; made once, at the first question."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        schema["components"]["schemas"]["Problem"] = PROBLEM_SCHEMA
        for unused in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(unused, None)
        schema["paths"] |= V2_PATHS
        app.openapi_schema = schema
    return app.openapi_schema


async def _openapi(request: Request) -> Response:
    """Answer with the document, made and written once a process: 600 kB take the event loop 30 ms to write."""
    known = _written.get(request.app)
    if known is None:
        known = await asyncio.to_thread(_write, request.app)
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"Content-Encoding": "gzip"} if is_packed else {}
    body = known.packed if is_packed else known.plain
    return Response(body, media_type="application/json", headers={"Vary": "Accept-Encoding", **headers})


@dataclass(frozen=True, slots=True)
class _Written:
    """The document as bytes."""

    plain: bytes
    packed: bytes


_written: dict[FastAPI, _Written] = {}
_writing = threading.Lock()


def _write(app: FastAPI) -> _Written:
    with _writing:  # the first questions may come together
        if app not in _written:
            plain = json.dumps(openapi(app), ensure_ascii=False, separators=(",", ":")).encode()
            _written[app] = _Written(plain, gzip.compress(plain, mtime=0))
    return _written[app]


async def _page() -> Response:
    return HTMLResponse(PAGE, headers={"Content-Security-Policy": PAGE_POLICY})


async def _asset(asset: str, request: Request) -> Response:
    if asset == "start.js":
        return Response(START, media_type="text/javascript")
    if asset not in ASSETS:
        return _no_such_path(request)
    path = files("fastapi_swagger") / "resources" / ASSETS[asset]
    headers = {"Cache-Control": "public, max-age=86400"}
    return FileResponse(str(path), media_type=MEDIA_TYPES[asset.rpartition(".")[2]], headers=headers)


def _no_such_path(request: Request) -> Response:
    status, body = plain_problem("no-such-path", "there is nothing at this path", request.url.path)
    return Response(body, status, media_type=CONTENT_TYPE)


# -- kinds of errors ---------------------------------------------------------------------------------------------------


async def _problems(request: Request) -> Response:
    known = [_explained(slug, row) for slug, row in sorted(all_problems().items())]
    if _wants_html(request):
        items = "".join(
            f'<li><a href="{one["type"][1:]}">{one["status"]} {html.escape(one["title"])}</a></li>' for one in known
        )
        return _html("Kinds of errors", f"<ul>{items}</ul>")
    return JSONResponse({"items": known})


async def _problem(slug: str, request: Request) -> Response:
    row = all_problems().get(slug)
    if row is None:
        return _no_such_path(request)
    known = _explained(slug, row)
    if not _wants_html(request):
        return JSONResponse(known)
    facts = ", ".join(f"<code>{name}</code>" for name in known["facts"]) or "none"
    status = f"<p>Status {_statuses(slug, row)}. Facts beside the standard members: {facts}.</p>"
    text = f"<p>{html.escape(known['description'])}</p>{status}"
    return _html(row.title, text)


def _explained(slug: str, row: Row) -> dict[str, Any]:
    error = ERRORS.get(slug)
    return {
        "type": PROBLEMS_PATH + slug,
        "title": row.title,
        "status": row.status,
        "description": _description(error) or row.title + ".",
        "facts": [] if error is None else sorted(set(error.__dataclass_fields__) - RESERVED),
    }


def _description(error: type[ApplianceError] | None) -> str:
    """The class's own docstring on one line; a dataclass without one has its signature there, which says nothing."""
    text = (error.__doc__ or "") if error is not None else ""
    return "" if error is None or text.startswith(f"{error.__name__}(") else " ".join(text.split())


def _statuses(slug: str, row: Row) -> str:
    """The status of a kind of error, with the other one that some of them have."""
    if issubclass(ERRORS.get(slug, ApplianceError), OutOfMemory):
        return f"{row.status}, or {OutOfMemory.never[0]} where waiting is of no use (<code>can_fit</code> is false)"
    return str(row.status)


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _html(title: str, body: str) -> Response:
    shown = html.escape(title)
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{shown}</title><h1>{shown}</h1>'
    return HTMLResponse(page + body, headers={"Content-Security-Policy": PAGE_POLICY})
