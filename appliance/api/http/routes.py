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
NAMES_TOTAL_MAX = 20_000
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
                await strict.check_large(field.validate)
            return await handle(strict)

        return handle_strictly


class StrictRequest(Request):
    """A request whose body is JSON that the box can store and say again, or none."""

    async def json(self) -> Any:
        """Raises: json.JSONDecodeError; TooLarge, Busy where what is made of it does not fit."""
        if not hasattr(self, "_json"):
            body = await self.body()
            self._hold(body)
            self._json = strict_json.read(body, strict_json.VALUES_MAX, NAMES_MAX)
        return self._json

    def _hold(self, body: bytes) -> None:
        """Count what is made of it. Raises: TooLarge, Busy."""
        held: HeldBody | None = self.scope.get(HELD_BODY)
        if held is not None:
            held.add(strict_json.VALUE_BYTES * strict_json.values_in(body, strict_json.VALUES_MAX))

    async def check_large(self, check: Check) -> None:
        """Refuse a large body with its first errors, off the event loop. Raises: RequestValidationError, QueueFull;
        TooLarge, Busy where what is made of it does not fit.
        """
        body = await self.body()
        if len(body) <= LARGE_BYTES:
            return
        if body.count(b'":') > NAMES_TOTAL_MAX:  # not even parsed
            message = f"has more than {NAMES_TOTAL_MAX:,} names"
            raise RequestValidationError([{"type": "too_many_names", "loc": ("body",), "msg": message}])
        self._hold(body)

        def read() -> tuple[Any, list[dict[str, Any]]]:
            value = strict_json.read(body, strict_json.VALUES_MAX, NAMES_MAX)
            return value, check(value, loc=("body",))[1][:ERRORS_MAX]

        media: MediaRunner = self.state.box.media
        principal = self.scope.get(PRINCIPAL)
        try:
            self._json, errors = await media.run("", principal.tenant if principal else "", None, read)
        except json.JSONDecodeError:
            return  # the handler says where
        if errors:
            raise RequestValidationError(errors)
