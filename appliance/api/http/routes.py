"""Routes whose JSON bodies are read strictly; every router of `/v1` that takes JSON is made of them."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from appliance.tasks import strict_json


class StrictRoute(APIRoute):
    """A route that hands its handler a `StrictRequest`; what `strict_json` refuses is answered `invalid-request`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


class StrictRequest(Request):
    """A request whose body is JSON that the box can store and say again, or none."""

    async def json(self) -> Any:
        """Raises: json.JSONDecodeError."""
        return strict_json.read(await self.body())
