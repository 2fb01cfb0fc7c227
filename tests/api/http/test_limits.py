"""The outermost layer: names, headers, and how much a body may hold."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appliance.api.auth.keyring import Principal
from appliance.api.http.limits import RESERVED_BYTES, BodyRules, Bounds, InFlight, content_length
from appliance.api.service import create_service
from appliance.domain.access import Role
from appliance.domain.errors import BadInput, Busy, UnknownApplication, WrongKey
from tests.api.stand import Asking

pytestmark = pytest.mark.anyio
PRINCIPAL = Principal("harbour", Role.TENANT, (), "k")
RULES = BodyRules.of(body_bytes_max=1000, frame_bytes_max=500, form_bytes_max=2000, upload_bytes_max=10**9)


CHUNKED = {"transfer-encoding": "chunked"}
PREDICT = "/v1/applications/a/predict"


class Journal:
    """Stands for the log."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def exception(self, event: str, **facts: object) -> None:
        self.lines.append(event)


async def reader(scope: Any, receive: Any, send: Any) -> None:
    """Reads everything and answers with the number of bytes."""
    count = 0
    while True:
        message = await receive()
        count += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=5")]})
    await send({"type": "http.response.body", "body": str(count).encode()})


def welcome(scope: Any, principal: Principal) -> Callable[[], bool]:
    return lambda: True


def bounds(app: Any = reader, in_flight: InFlight | None = None, journal: Journal | None = None) -> Bounds[Principal]:
    return Bounds(app, RULES, in_flight or InFlight(10_000), journal or Journal(), lambda scope: PRINCIPAL, welcome)


def blocks(count: int, size: int = 100) -> Iterator[bytes]:
    return (b"x" * size for _ in range(count))


def predicting(app: Any, count: int, headers: dict[str, str] | None = None) -> Asking:
    """A request for an answer whose body has so many blocks of 100 bytes; announced, unless `headers` say otherwise."""
    return Asking(app, "POST", PREDICT, headers or {"content-length": str(100 * count)}, blocks(count))


async def test_body_within_the_limit_is_accepted() -> None:
    """Chunked or announced, up to the limit exactly."""
    for headers in (CHUNKED, {"content-length": "1000"}):
        async with predicting(bounds(), 10, headers) as asking:
            assert await asking.status() == 200
            assert await asking.piece() == b"1000"


async def test_chunked_body_above_the_limit_is_stopped_while_streaming() -> None:
    """One byte above the limit: 413 with the limit as a fact, and the rest is not read into memory."""
    in_flight = InFlight(10_000)
    async with predicting(bounds(in_flight=in_flight), 11, CHUNKED) as asking:
        assert await asking.status() == 413
        document = json.loads(await asking.piece())
    assert (document["type"], document["limit_bytes"]) == ("/problems/too-large", 1000)
    assert in_flight.bytes == 0


async def test_announced_body_above_the_limit_is_refused_unread() -> None:
    """When the application asks for its first byte; an answer that needs no body is given."""

    def never() -> Iterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    async def unknown(scope: Any, receive: Any, send: Any) -> None:
        raise UnknownApplication(name="a")

    for app, status in ((reader, 413), (unknown, 404)):
        async with Asking(bounds(app), "POST", PREDICT, {"content-length": "1001"}, never()) as asking:
            assert await asking.status() == status


@pytest.mark.parametrize(
    ("method", "path", "limit"),
    [
        ("POST", PREDICT, 1000),
        ("POST", "/v2/models/a/infer", 1000),
        ("POST", "/v1/models", 2000 + 2**20),
        ("POST", "/v1/models/a/variants", 2000 + 2**20),
        ("PATCH", "/v1/uploads/u", 10**9),
        ("POST", "/v1/uploads", 2**20),
        ("POST", "/v1/tenants", 2**20),
        ("PATCH", "/v1/applications/a", 2**20),
    ],
)
async def test_body_limit_depends_on_the_kind_of_route(method: str, path: str, limit: int) -> None:
    """Media, forms, uploads and management differ by orders of magnitude."""
    assert RULES.rule(method, path).limit_bytes == limit


async def test_bodies_in_memory_share_one_budget() -> None:
    """While one body of 900 is held, another of 200 does not fit in 1000: 503; afterwards it does."""
    in_flight = InFlight(1000)
    held, go = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        held.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with predicting(bounds(slow, in_flight), 9) as first:
        await held.wait()
        assert in_flight.bytes == 900
        async with predicting(bounds(in_flight=in_flight), 2) as second:
            assert await second.status() == 503
            assert json.loads(await second.piece())["type"] == "/problems/busy"
        go.set()
        assert await first.status() == 200
    assert in_flight.bytes == 0
    async with predicting(bounds(in_flight=in_flight), 2) as third:
        assert await third.status() == 200


async def test_body_with_a_wrong_key_is_refused_unread() -> None:
    """Announced or in chunks: 401, and neither the app nor the budget sees any of it."""

    async def never(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the app was asked")

    def stranger(scope: Any) -> Principal:
        raise WrongKey

    for headers in ({"content-length": "900"}, {"transfer-encoding": "chunked"}):
        in_flight = InFlight(1000)
        app = Bounds(never, RULES, in_flight, Journal(), stranger, welcome)
        async with Asking(app, "POST", "/v1/uploads", headers, blocks(9)) as asking:
            assert await asking.status() == 401
            assert in_flight.bytes == 0


async def test_tenant_with_most_bodies_in_flight_leaves_room_for_another() -> None:
    """The tenant that holds most of the budget is refused where another still finds room."""
    in_flight = InFlight(1000)
    with in_flight.body("flooder") as first, in_flight.body("flooder") as second, in_flight.body("quiet") as other:
        first.announce(800)
        with pytest.raises(Busy):
            second.announce(150)
        other.announce(150)
        assert in_flight.bytes == 950
    assert in_flight.bytes == 0


async def test_handed_over_body_counts_until_its_new_holder_releases_it() -> None:
    """Once: the answer to the request gives back nothing of it."""
    in_flight = InFlight(1000)
    with in_flight.body("a") as first:
        first.announce(600)
        second = first.hand_over()
    assert in_flight.bytes == 600
    second.release()
    second.release()
    assert in_flight.bytes == 0


async def test_announced_large_body_reserves_little_until_it_comes() -> None:
    """Of a large body only what the server gathers unasked is reserved; the rest counts as it comes."""
    in_flight = InFlight(10 * RESERVED_BYTES)
    with in_flight.body("a") as body:
        body.announce(5 * RESERVED_BYTES)
        assert in_flight.bytes == RESERVED_BYTES
        body.grow(2 * RESERVED_BYTES)
        assert in_flight.bytes == 2 * RESERVED_BYTES
        with pytest.raises(Busy):
            body.grow(11 * RESERVED_BYTES)
    assert in_flight.bytes == 0


async def test_uploads_do_not_count_as_bodies_in_memory() -> None:
    """Uploads are spooled: a piece of a gigabyte does not keep devices out."""
    in_flight = InFlight(1000)
    async with Asking(bounds(in_flight=in_flight), "PATCH", "/v1/uploads/u", {}, blocks(50)) as asking:
        assert await asking.status() == 200
        assert in_flight.bytes == 0


async def test_answers_have_a_request_id_and_safe_headers() -> None:
    """A header that a route set itself stays."""
    async with Asking(bounds(), "GET", "/v1/system") as asking:
        await asking.status()
        assert asking.started is not None
        headers = dict(asking.started.result()["headers"])
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"x-frame-options"] == b"DENY"
    assert headers[b"content-security-policy"].startswith(b"default-src 'none'")
    assert headers[b"cache-control"] == b"max-age=5"
    assert headers[b"x-request-id"]


@pytest.mark.parametrize(("given", "kept"), [("frame-17", True), ("x" * 65, False), ("a b\n", False), ("", False)])
async def test_sane_request_id_of_the_caller_is_kept(given: str, kept: bool) -> None:
    """An id that could break a log line is replaced."""
    async with Asking(bounds(), "GET", "/v1/system", {"X-Request-Id": given}) as asking:
        await asking.status()
        assert asking.started is not None
        assert (dict(asking.started.result()["headers"])[b"x-request-id"].decode() == given) is kept


async def test_unexpected_exception_is_logged_and_answered_without_its_text() -> None:
    """500 as a problem; the log has the rest."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("password 42")

    journal = Journal()
    async with Asking(bounds(broken, journal=journal), "GET", "/v1/system") as asking:
        assert await asking.status() == 500
        body = await asking.piece()
    assert json.loads(body)["type"] == "/problems/internal-error"
    assert b"42" not in body
    assert journal.lines == ["request failed"]


async def test_exception_in_a_route_is_a_problem_answer_logged_once() -> None:
    """Also inside the framework; nothing is raised to the server."""
    journal = Journal()
    without_a_box = bounds(create_service(), journal=journal)
    async with Asking(without_a_box, "GET", "/v1/models") as asking:
        assert await asking.status() == 500
        assert json.loads(await asking.piece())["type"] == "/problems/internal-error"
        await asking.task
    assert journal.lines == ["request failed"]


async def test_exception_after_the_answer_has_begun_closes_the_connection() -> None:
    """The exception cannot be told in words any more: it is raised to the server, which cuts the connection."""

    async def half(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("in the middle")

    async with Asking(bounds(half), "GET", "/v1/system") as asking:
        assert await asking.status() == 200
        with pytest.raises(ValueError, match="in the middle"):
            await asking.task


@pytest.mark.parametrize("value", [b"many", b"-1", b"9" * 19])
def test_content_length_that_is_no_sane_number_is_refused(value: bytes) -> None:
    with pytest.raises(BadInput):
        content_length({"headers": [(b"content-length", value)]})
