"""HEAD wherever GET is answered: the same status and headers, and no body."""

import re

import pytest
from fastapi.routing import APIRoute

from appliance.api.service import ROUTERS
from tests.api.stand import Asking, Stand

pytestmark = pytest.mark.anyio

OF_EACH = {"date", "x-request-id"}
OF_BODY = {"content-length", "etag"}
NAMES = {"model": "adding", "application": "adding", "tenant": "harbour"}
BESIDE = ["/", "/docs", "/openapi.json", "/problems/too-large", "/assets/none.js", "/nowhere", "/v1/models/adding/load"]
V2 = ["", "/", "/health/live", "/health/ready", "/models/adding", "/models/adding/config", "/models/adding/ready"]
V2 += ["/models/adding/stats", "/models/stats", "/models/adding/versions/9", "/models/adding/infer", "/nothing"]


def paths() -> list[str]:
    """All that GET is answered at, with names that are there, and names that are not."""
    found = {
        re.sub(r"\{(\w+)[^}]*\}", lambda name: NAMES.get(name[1], "none"), route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }
    return [*sorted(found - {"/v1/events"}), *BESIDE, *(f"/v2{path}" for path in V2)]


async def test_head_is_answered_as_get_without_a_body(stand: Stand) -> None:
    """Everywhere, errors too."""
    for who in ("admin", None):
        client = stand.client(who)
        for path in paths():
            first, head, second = await client.get(path), await client.head(path), await client.get(path)
            assert (head.status_code, head.content) == (first.status_code, b""), path
            steady = {name for name in first.headers if first.headers[name] == second.headers.get(name)} - OF_EACH
            if first.content != second.content:  # it tells of the box as it is at the moment
                steady -= OF_BODY
            assert {name: head.headers.get(name) for name in steady} == {name: first.headers[name] for name in steady}
            assert set(head.headers) == set(first.headers), path


async def test_head_of_the_event_stream_ends(stand: Stand) -> None:
    """The answer to GET goes on for as long as the client listens."""
    headers = {"Authorization": f"Bearer {stand.keys['harbour']}"}
    async with Asking(stand.appliance.asgi, "HEAD", "/v1/events", headers) as asking:
        assert await asking.status() == 200
        await asking.ended()
        assert asking.pieces.empty()
