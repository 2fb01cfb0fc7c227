"""HEAD wherever GET is answered: the same status and headers, and no body."""

import pytest

from tests.api.paths import V2, paths
from tests.api.stand import Asking, Stand

pytestmark = pytest.mark.anyio

OF_EACH = {"date", "x-request-id"}
OF_BODY = {"content-length", "etag"}
V2 += ["/models/adding/stats", "/models/stats", "/models/adding/versions/9", "/models/adding/infer", "/nothing"]


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
