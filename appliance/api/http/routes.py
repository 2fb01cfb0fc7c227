"""Routes whose JSON bodies are read strictly; every router of `/v1` that takes JSON is made of them.

A large body is read and checked where media is worked on, for that may take longer than the event loop has for it.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from appliance.api.http.faults import ERRORS_MAX
from appliance.api.http.limits import HELD_BODY, PRINCIPAL, HeldBody
from appliance.runtime.ports import MediaRunner
from appliance.tasks import strict_json

LARGE_BYTES = 16 * 1024
"""A body beyond this is not read on the event loop."""
NAMES_MAX = 1000
"""Of one object: the model of what is expected looks at each, and says of each that it is not known."""
Check = Callable[..., tuple[Any, list[dict[str, Any]]]]
"""Of a value and where it stands: what is wrong with it."""


class StrictRoute(APIRoute):
    """A route that hands its handler a `StrictRequest`; what `strict_json` refuses is answered `invalid-request`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        field = self.body_field

        async def handle_strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            if field is not None and "json" in request.headers.get("content-type", ""):
                await strict.read_ahead(field.validate)
            return await handle(strict)

        return handle_strictly


class StrictRequest(Request):
    """A request whose body is JSON that the box can store and say again, or none."""

    async def json(self) -> Any:
        """Raises: json.JSONDecodeError; TooLarge, Busy where what is made of it does not fit."""
        if not hasattr(self, "_json"):
            body = await self.body()
            self._hold(body)
            self._json = strict_json.read_checked(body, NAMES_MAX)
        return self._json

    def _hold(self, body: bytes) -> None:
        """Hold memory for the values that are made of the body. Raises: strict_json.TooMuch; TooLarge, Busy."""
        values = strict_json.check(body)
        held: HeldBody | None = self.scope.get(HELD_BODY)
        if held is not None:
            held.add(strict_json.VALUE_BYTES * values)

    async def read_ahead(self, check: Check) -> None:
        """Read the body before the framework does; check a large one against its model, too, off the event loop.

        Raises: RequestValidationError, QueueFull; TooLarge, Busy where what is made of it does not fit.
        """
        body = await self.body()
        errors: list[dict[str, Any]] = []
        try:
            if len(body) > LARGE_BYTES:
                errors = await self._read_apart(body, check)
            elif body:
                await self.json()
        except strict_json.TooMuch as error:
            errors = [{"type": "too_much", "loc": ("body",), "msg": str(error)}]
        except json.JSONDecodeError as error:  # in the framework's words
            errors = [{"type": "json_invalid", "loc": ("body", error.pos), "msg": "", "ctx": {"error": error.msg}}]
        if errors:
            raise RequestValidationError(errors)

    async def _read_apart(self, body: bytes, check: Check) -> list[dict[str, Any]]:
        """Read a large body in a thread of those that work on media; return its first errors."""
        self._hold(body)

        def read() -> tuple[Any, list[dict[str, Any]]]:
            value = strict_json.read_checked(body, NAMES_MAX)
            return value, check(value, loc=("body",))[1][:ERRORS_MAX]

        media: MediaRunner = self.state.box.media
        principal = self.scope.get(PRINCIPAL)
        self._json, errors = await media.run("", principal.tenant if principal else "", None, read)
        return errors
