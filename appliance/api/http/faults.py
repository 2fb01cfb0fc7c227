"""Exceptions that leave a route, as problem documents. What nobody expected also goes on to `limits`, which logs it."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from appliance.api.http.problems import CONTENT_TYPE, plain_problem, problem_response
from appliance.domain.errors import ApplianceError

ERRORS_MAX = 20
"""Field errors that one answer names."""
FIELD_MAX = 100
"""Characters of the name of a field; a field that nobody knows may be called anything."""


def register(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Register an answer for every kind of exception. `app.state.page` answers browsers at addresses of no page."""
    app.state.routers = routers
    app.add_exception_handler(ApplianceError, _appliance_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _appliance_error)


async def _appliance_error(request: Request, exc: Exception) -> Response:
    status, headers, body = problem_response(exc, request.url.path)
    return Response(body, status, headers)


async def _invalid(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    errors = [_field_error(error) for error in exc.errors()[:ERRORS_MAX]]
    detail = "; ".join(f"{error['field']}: {error['message']}" for error in errors)
    return _plain(request, "invalid-request", detail, {"errors": errors})


def _field_error(error: dict[str, Any]) -> dict[str, str]:
    """Where and what; the value itself is left out, it may be a secret or huge."""
    where = [str(part)[:FIELD_MAX] for part in error["loc"]]
    if error["type"] == "json_invalid":
        return {"field": "body", "in": "body", "message": f"no JSON: {error['ctx']['error']} at character {where[-1]}"}
    if error["type"] in ("union_tag_not_found", "union_tag_invalid"):
        key = str(error["ctx"]["discriminator"]).strip("'")
        known = error["ctx"].get("expected_tags")
        message = f"must be one of {known}" if known else "is missing: it says which kind this is of"
        return {"field": ".".join([*where[1:], key]), "in": where[0], "message": message}
    message = error["msg"].removeprefix("Value error, ")
    return {"field": ".".join(where[1:]) or where[0], "in": where[0], "message": message}


async def _http(request: Request, exc: Exception) -> Response:
    """The framework's own: no such path, wrong method, unreadable body; an error of ours inside wins."""
    assert isinstance(exc, HTTPException)
    if isinstance(exc.__cause__, ApplianceError):
        return await _appliance_error(request, exc.__cause__)
    if exc.status_code == 404:
        if _is_browser(request):
            shown: Response = await request.app.state.page(request)
            shown.status_code = 404
            return shown
        return _plain(request, "no-such-path", "there is nothing at this path; /docs lists what there is")
    if exc.status_code == 405:
        allowed = ", ".join(sorted(_methods(request) or {"GET", "HEAD"}))
        return _plain(request, "method-not-allowed", f"use {allowed}", headers={"Allow": allowed})
    return _plain(request, "bad-request", str(exc.detail))


def _is_browser(request: Request) -> bool:
    """Return whether a browser asks for a page, at an address outside the API."""
    wants_page = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    return wants_page and not request.url.path.startswith(("/v1/", "/v2/"))


def _methods(request: Request) -> set[str]:
    """What the path can be asked with; the framework itself names only those of the first route that fits."""
    routes = [route for router in request.app.state.routers for route in router.routes if isinstance(route, APIRoute)]
    methods = {
        method for route in routes if route.matches(request.scope)[0] != Match.NONE for method in route.methods or ()
    }
    return methods | {"HEAD"} if "GET" in methods else methods


async def _gone(request: Request, _: Exception) -> Response:
    """The caller hung up while sending; nobody reads this."""
    return _plain(request, "bad-request", "the connection closed inside the body")


def _plain(
    request: Request,
    slug: str,
    detail: str,
    facts: dict[str, object] | None = None,
    *,
    headers: dict[str, str] | None = None,
) -> Response:
    status, body = plain_problem(slug, detail, request.url.path, facts)
    return Response(body, status, {"Content-Type": CONTENT_TYPE, **(headers or {})})
