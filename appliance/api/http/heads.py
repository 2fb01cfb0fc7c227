"""HEAD wherever GET is answered: the same status and headers, and no body."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import Match

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class _Told(Exception):
    """The head of the answer is written: nothing more is wanted of who makes the body."""


class Heads:
    """Wraps the framework's application, which answers HEAD only where a route of its own does."""

    def __init__(self, app: Callable[..., Awaitable[None]], routers: Sequence[APIRouter]) -> None:
        self._app = app
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._own = [route for route in routes if "HEAD" in (route.methods or ())]

    async def __call__(self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        """One request of ASGI type `http`."""
        if scope["method"] != "HEAD" or any(route.matches(scope)[0] is Match.FULL for route in self._own):
            await self._app(scope, receive, send)
            return

        async def tell(message: _Message) -> None:
            await send(message)
            await send({"type": "http.response.body", "body": b""})
            raise _Told

        try:
            await self._app({**scope, "method": "GET"}, receive, tell)
        except _Told:
            pass
