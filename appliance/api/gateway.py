"""The first fork of the way: `/v2` goes to its bare handler, everything else through the framework."""

from collections.abc import Callable

from appliance.api.box import Box
from appliance.api.limits import ASGIApp, Receive, Scope, Send
from appliance.api.routes.v2 import V2


class Gateway:
    """An ASGI application. Lifespan messages go to the framework."""

    def __init__(self, box: Callable[[], Box], service: ASGIApp) -> None:
        self._v2 = V2(box)
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v2"):
            await self._v2(scope, receive, send)
        else:
            await self._service(scope, receive, send)
