"""Streams over real sockets, against a box in a process of its own: frames, their ends, resuming, and bad input."""

import asyncio
import contextlib
import json
import ssl
import struct
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from appliance.api.http.websocket import FRAMES_MAX
from appliance.domain.session import FrameEnd, NoticeKind
from appliance.wire.stream import HEAD_BYTES_MAX, Ack, PlanMessage, ResultMessage
from tests.api.stand import copied
from tests.api.streams.conftest import LATENCY, Box
from tests.api.streams.device import PATIENCE_S, PATIENT, Device, opened
from tests.attacks.wire import Wire, head
from tests.e2e.server import running_server
from tests.harness.lanes import examples

pytestmark = pytest.mark.anyio


def sums_up(shown: dict[str, Any]) -> bool:
    """Whether every frame that was sent has ended exactly once."""
    return bool(shown["sent"] == shown["answered"] + shown["late"] + shown["dropped"] + shown["lost"])


async def refused(box: Box, who: str, session: str, query: str = "", **headers: str) -> int:
    """The status of a handshake that is answered with a problem."""
    with pytest.raises(InvalidStatus) as caught:
        async with opened(box.server.url, box.keys.get(who, "ea_wrong"), session, query, **headers):
            pass
    answer = caught.value.response
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code


async def test_stream_frames_are_answered_as_predict_answers(box: Box) -> None:
    """The plan first; each frame acknowledged and then answered, with what `predict` says of the same picture."""
    async with box.device() as device, box.http() as client:
        plan = await device.next()
        assert isinstance(plan, PlanMessage)
        assert (plan.variant, plan.credit) == ("fp32", 2)
        await device.agree()
        start_ms = device.now_ms()
        for number, picture in enumerate(box.pictures[:5]):
            result = await device.answered(number, picture, captured=number + 1, skipped=0)
            assert result.outcome is FrameEnd.ANSWERED
            expected = (await client.post("/v1/applications/digits/predict", content=picture)).json()
            assert result.answer.keys() == expected.keys()
            assert result.answer["labels"] == expected["labels"]
        acks = [message for message in device.heard if isinstance(message, Ack)]
        assert [(ack.frame, ack.bytes) for ack in acks] == [(at, len(box.pictures[at])) for at in range(5)]
        assert all(0 <= ack.took_ms <= device.now_ms() - start_ms for ack in acks)
        shown = await box.shown(device.session)
    assert (shown["sent"], shown["answered"]) == (5, 5)


async def test_stream_results_are_pictures_where_the_handshake_asks(box: Box) -> None:
    """Announced, and then sent as they are."""
    session = await box.join("harbour", application="adding")
    rows = [[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 8.0]]
    body = json.dumps({"inputs": {"A": rows, "B": rows}}).encode()
    async with opened(box.server.url, box.keys["harbour"], session, Accept="image/png") as device:
        result = await device.answered(0, body)
        assert (result.outcome, result.answer) == (FrameEnd.ANSWERED, None)
        assert result.picture.media_type == "image/png"
        picture = await device.socket.recv()
        assert isinstance(picture, bytes)
        assert (picture[:4], len(picture)) == (b"\x89PNG", result.picture.bytes)
    async with box.device(session, "harbour") as device:
        assert (await device.answered(1, body)).answer["outputs"]


async def test_frame_of_a_stream_is_on_the_live_wall_of_its_tenant(box: Box) -> None:
    """Looks go on until one finds a frame: on a busy machine a look may be over before the frame is answered."""
    shown: list[dict[str, Any]] = []
    picture = b""
    async with box.device() as device, box.http("harbour") as viewer:
        assert (await viewer.put("/v1/wall/viewers", json={"viewers": "tenant"})).status_code == 200
        while not shown or shown[0]["outcome"] != "answered" or picture != box.pictures[0]:
            number = 3 * len(device.heard)
            await viewer.get("/v1/wall")
            result = await device.answered(number, box.pictures[0])
            shown = (await viewer.get("/v1/wall")).json()["streams"]
            picture = (await viewer.get(f"/v1/wall/{device.session}/frame")).content
        (stream,) = shown
        assert (stream["stream"], stream["frame"], stream["application"]) == (device.session, number, "digits")
        assert stream["answer"] == result.answer


async def test_frame_captured_at_an_absurd_time_is_dropped_as_expired(box: Box) -> None:
    """Of the future, of long ago and of no time; the device's clock began elsewhere than the box's."""
    async with box.device() as device:
        await device.agree()
        assert (await device.answered(1, box.pictures[0])).outcome is FrameEnd.ANSWERED
        now_ms = device.now_ms()
        for frame, captured_ms in enumerate((now_ms + 60_000, now_ms - 60_000, float("nan"), 1e308, -1e308), start=2):
            await device.head(frame, 1000, captured_ms=captured_ms)
            result = await device.until("result", frame=frame)
            assert (result.outcome, result.cause) == (FrameEnd.DROPPED, "expired")
        assert (await device.answered(9, box.pictures[0])).outcome is FrameEnd.ANSWERED
        shown = await box.shown(device.session)
    assert (shown["sent"], shown["answered"], shown["dropped"]) == (7, 2, 5)


async def test_frame_before_the_clock_exchange_is_as_new_as_its_head(box: Box) -> None:
    """A device that never sends its clock is served all the same."""
    async with box.device() as device:
        assert (await device.answered(0, box.pictures[0], captured_ms=17.0)).outcome is FrameEnd.ANSWERED


async def test_repeated_frame_counts_once_and_with_other_bytes_is_refused(box: Box) -> None:
    """With the same bytes the frame gets the same answer; with others, or far out of order, 409."""
    async with box.device() as device:
        first = await device.answered(100, box.pictures[0])
        again = await device.answered(100, box.pictures[0])
        assert again.answer == first.answer
        await device.send(100, box.pictures[1])
        error = await device.until("error", frame=100)
        assert (error.problem["status"], error.close) == (409, None)
        for far in (10**15, 0):
            await device.head(far, 1000)
            error = await device.until("error", frame=far)
            assert (error.problem["type"], error.outcome) == ("/problems/frame-mismatch", None)
        assert (await device.answered(101, box.pictures[1])).outcome is FrameEnd.ANSWERED
        assert (await box.shown(device.session))["sent"] == 2


async def test_frame_without_a_picture_fails_and_the_stream_goes_on(box: Box) -> None:
    async with box.device() as device:
        await device.send(0, b"this is no picture at all")
        error = await device.until("error", frame=0)
        assert (error.problem["type"], error.outcome) == ("/problems/bad-media", FrameEnd.DROPPED)
        assert (await device.answered(1, box.pictures[0])).outcome is FrameEnd.ANSWERED


@pytest.mark.parametrize("how", ["shorter", "empty", "text", "gone"])
async def test_withdrawn_frame_is_lost_and_the_next_is_answered(box: Box, how: str) -> None:
    """Withdrawn by a shorter message, another one in its place, or with the line."""
    session = await box.join()
    async with box.device(session) as device:
        await device.head(0, 1000)
        if how in ("shorter", "empty"):
            await device.socket.send(bytes(500 if how == "shorter" else 0))
        elif how == "text":
            await device.say(type="clock", sent_ms=1.0)
            await device.until("clock")
    async with box.device(session) as device:
        assert (await device.answered(1, box.pictures[0])).outcome is FrameEnd.ANSWERED
    shown = await box.shown(session)
    assert (shown["sent"], shown["lost"], shown["answered"]) == (2, 1, 1)


async def test_stream_frame_or_head_that_is_too_large_closes_with_1009(box: Box) -> None:
    """A frame that its head announces, a frame that is larger than its head says, and a head."""
    session = await box.join()
    async with box.device(session) as device:
        await device.head(0, 4 * 2**20 + 1)
        assert await device.ended() == 1009
        error: Any = device.heard[-1]
        assert (error.problem["status"], error.frame, error.close) == (413, 0, 1009)
        assert error.outcome is FrameEnd.DROPPED
    for count in (5000, 100):
        async with box.device(session) as device:
            await device.head(1, count)
            await device.socket.send(bytes(count + 1))
            assert await device.ended() == 1009
            error = device.heard[-1]
            assert (error.problem["status"], error.close) == (413, 1009)
    async with box.device(session) as device:
        await device.socket.send("x" * (HEAD_BYTES_MAX + 1))
        assert await device.ended() == 1009
    shown = await box.shown(session)
    assert (shown["sent"], shown["lost"], shown["drops"]) == (2, 1, {"bad-media": 1})


@pytest.mark.parametrize(
    "message",
    ["", "{", "[]", "17", '{"type": "frame"}', '{"type": "weather"}', '{"type": "frame", "frame": -1}', b"a picture"],
)
async def test_broken_frame_head_closes_the_stream_with_1003(box: Box, message: str | bytes) -> None:
    """An error says what is wrong; the session is not touched."""
    async with box.device() as device:
        await device.socket.send(message)
        assert await device.ended() == 1003
        error: Any = device.heard[-1]
        assert (error.problem["type"], error.close) == ("/problems/invalid-request", 1003)
        assert (await box.shown(device.session))["sent"] == 0


async def test_stream_frame_above_the_credit_closes_the_stream(box: Box) -> None:
    """Frames that are sent in one piece were sent without waiting: the third is refused, and the stream closed."""
    async with box.device() as device:
        raw = device.socket
        for number in range(3):
            head = {"type": "frame", "frame": number, "captured_ms": 1.0, "bytes": len(box.pictures[number])}
            raw.protocol.send_text(json.dumps(head).encode())
            raw.protocol.send_binary(box.pictures[number])
        raw.transport.write(b"".join(raw.protocol.data_to_send()))
        assert await device.ended() == 1008
        error = next(message for message in device.heard if message.type == "error")
        assert error.problem["type"] == "/problems/credit-exceeded"
        assert (error.frame, error.close) == (2, 1008)
    async with asyncio.timeout(PATIENCE_S):
        while not sums_up(shown := await box.shown(device.session)):
            pass
    assert (shown["sent"], shown["drops"]) == (3, {"credit": 1})


async def test_flood_of_tiny_websocket_frames_ends_the_stream_only(box: Box) -> None:
    """The session stays."""
    async with box.device() as device:
        await device.next()
        device.socket.transport.write(b"\x89\x80\0\0\0\0" * 10 * FRAMES_MAX)
        error = await device.until("error")
        assert (error.close, await device.ended()) == (1008, 1008)
    assert (await box.shown(device.session))["state"] != "ended"


async def test_device_reports_with_absurd_figures_are_bounded(box: Box) -> None:
    """And the frame that a report comes with is answered."""
    async with box.device() as device:
        boast = {"captured": 1e300, "skipped": 2**60, "drop_rate": float("nan"), "rtt_ms": -1, "downlink_ms": 1e9}
        assert (await device.answered(0, box.pictures[0], **boast)).outcome is FrameEnd.ANSWERED
        assert (await device.answered(1, box.pictures[0], skipped=float("nan"))).outcome is FrameEnd.ANSWERED
        variant = (await box.shown(device.session))["plan"]["variant"]
        curves = {variant: {"rate": 9.0, "gaps": {"other": float("nan")}}, "none": {"rate": float("nan")}, "x": {}}
        assert (await device.answered(2, box.pictures[0], drop_curves=curves)).outcome is FrameEnd.ANSWERED
        shown = await box.shown(device.session)
        assert shown["captured"] < 10_000
        assert shown["drop_curves"] in ({}, {variant: {"gap": 0.0, "rate": 0.2}})


async def test_newer_connection_takes_the_session_over(box: Box) -> None:
    """The older connection is closed with 4000, and the session goes on."""
    session = await box.join()
    async with box.device(session) as older:
        await older.next()
        async with box.device(session) as newer:
            assert await older.ended() == 4000
            assert (await newer.answered(0, box.pictures[0])).outcome is FrameEnd.ANSWERED
            assert (await box.shown(session))["state"] == "served"


async def test_results_unseen_by_the_device_come_again_on_reconnect(box: Box) -> None:
    """Results of frames after the last that the device says it has seen; none where the device says nothing."""
    session = await box.join()
    async with box.device(session) as device:
        results = [await device.answered(number, box.pictures[number]) for number in range(3)]
    async with box.device(session, query="?seen=0") as device:
        assert [(await device.until("result", frame=number)).answer for number in (1, 2)] == [
            result.answer for result in results[1:]
        ]
        await device.answered(3, box.pictures[3])
    async with box.device(session) as device:
        await device.answered(4, box.pictures[4])
        frames = [message.frame for message in device.heard if isinstance(message, ResultMessage)]
        assert frames == [4]


async def test_frame_under_way_ends_on_the_newer_connection(box: Box) -> None:
    """Once, whether it ends before the newer connection is there or after."""
    session = await box.join()
    large = _black_png(3000)  # takes longer to decode than a connection to open
    async with box.device(session) as older:
        assert (await older.answered(0, box.pictures[0])).outcome is FrameEnd.ANSWERED
        await older.send(1, large)
        await older.until("ack", frame=1)
        async with box.device(session, query="?seen=0") as newer:
            await newer.until("result", frame=1)
            await newer.answered(2, box.pictures[1])
            frames = [message.frame for message in newer.heard if isinstance(message, ResultMessage)]
            assert frames == [1, 2]


def _black_png(side: int) -> bytes:
    """A square of grey levels, all 0."""
    chunks = [
        (b"IHDR", struct.pack("!IIBBBBB", side, side, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(side * (side + 1)))),
        (b"IEND", b""),
    ]
    packed = [
        struct.pack("!I", len(data)) + name + data + struct.pack("!I", zlib.crc32(name + data)) for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


async def test_ended_session_ends_its_stream(box: Box) -> None:
    """With a notice and 1000; then there is no stream to open."""
    async with box.device() as device, box.http() as client:
        await device.next()
        await client.delete(f"/v1/sessions/{device.session}")
        assert await device.ended() == 1000
        notice: Any = device.heard[-1]
        assert notice.kind is NoticeKind.ENDED
        assert await refused(box, "device", device.session) == 404


async def test_stream_opens_only_for_the_key_that_joined_and_its_tenant(box: Box) -> None:
    """Refused: another key, another tenant's key, a wrong key, and a page of another origin."""
    session = await box.join()
    url = box.server.url
    origin = {"Origin": "https://elsewhere.example"}
    cases: list[tuple[str, dict[str, str], int]] = [
        ("probe", {}, 404),
        ("museum", {}, 404),
        ("admin", {}, 404),
        ("nobody", {}, 401),
        ("device", origin, 403),
        ("device", {"Origin": "http://["}, 403),
    ]
    for who, headers, status in cases:
        assert await refused(box, who, session, **headers) == status
    async with opened(url, box.keys["device"], session, Origin=url) as device:
        await device.next()
    async with opened(url, box.keys["harbour"], session) as device:
        await device.next()
    assert await refused(box, "device", session, "?seen=-1") == 422


async def test_stream_opens_with_the_cookie_of_a_page_of_the_box(box: Box) -> None:
    """Only for a page of the box: not elsewhere, not on another port, not without an origin; and for as long as the
    page is signed in.
    """
    url = box.server.url
    session = await box.join("harbour")
    address = f"{url.replace('http', 'ws', 1)}/v1/sessions/{session}/stream"
    async with httpx.AsyncClient(base_url=url, headers={"Origin": url}, timeout=PATIENCE_S) as page:
        assert (await page.post("/v1/sign-in", json={"key": box.keys["harbour"]})).status_code == 204
        cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in page.cookies.items())}
        for origin in ("https://elsewhere.example", "http://127.0.0.1:1", "null", None):
            headers = cookie | ({} if origin is None else {"Origin": origin})
            with pytest.raises(InvalidStatus, match="403"):
                async with connect(address, additional_headers=headers, proxy=None, **PATIENT):
                    pass
        async with connect(address, additional_headers=cookie | {"Origin": url}, proxy=None, **PATIENT) as socket:
            device = Device(socket, session)
            assert (await device.answered(0, box.pictures[0])).outcome is FrameEnd.ANSWERED
            assert (await page.delete("/v1/sign-in")).status_code == 204
            assert await device.ended() == 1008


async def test_revoked_key_ends_the_stream(box: Box) -> None:
    """Within seconds, with 1008."""
    async with box.http("harbour") as client:
        made = (await client.post("/v1/tenants/harbour/keys", json={"role": "device"})).json()
        box.keys["lent"] = made["key"]
        async with box.device(who="lent") as device:
            await device.next()
            await client.delete(f"/v1/tenants/harbour/keys/{made['id']}")
            assert await device.ended() == 1008


async def test_stream_request_that_is_no_handshake_is_refused(box: Box) -> None:
    """With 426, which asks for the WebSocket; with a body, or as a POST, an upgrade is no handshake either."""
    session = await box.join()
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    async with box.http() as client:
        path = f"/v1/sessions/{session}/stream"
        answer = await client.get(path)
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
        assert (await client.request("GET", path, headers=upgrade, content=b"body")).status_code == 426
        assert (await client.post(path, headers=upgrade)).status_code == 405
        assert (await client.get(path, headers=upgrade | {"Sec-WebSocket-Key": "none"})).status_code == 400


@pytest.mark.parametrize("early", [10, 20_000], ids=["a little", "much"])
async def test_bytes_before_the_handshake_answer_end_the_connection(box: Box, early: int) -> None:
    """The bytes come behind the head in the same piece; other connections are not affected."""
    session = await box.join()
    handshake = head(
        "GET",
        f"/v1/sessions/{session}/stream",
        box.keys["device"],
        connection="Upgrade",
        upgrade="websocket",
        sec_websocket_version=13,
        sec_websocket_key="AAAAAAAAAAAAAAAAAAAAAA==",
    )
    wire = Wire(box.server.url)
    wire.send(handshake + bytes(early))
    assert (await asyncio.to_thread(wire.answer))[0] in (0, 400)
    assert await asyncio.to_thread(wire.is_closed)
    wire.close()
    async with box.device(session) as device:
        assert (await device.answered(0, box.pictures[0])).outcome is FrameEnd.ANSWERED


@pytest.mark.nightly("ten seconds pass")
async def test_incomplete_frame_ends_the_stream_after_ten_seconds(box: Box) -> None:
    """Ten seconds after its head, whatever part of the body has come; the frame counts as lost."""
    async with box.device() as device:
        await device.head(0, 1000)
        assert await device.ended() == 1008
        error: Any = device.heard[-1]
        assert error.problem["type"] == "/problems/request-timeout"
    assert (await box.shown(device.session))["lost"] == 1


_TEXT = st.text(max_size=60)
_NUMBER = st.integers(-5, 2**60) | st.floats()
_MESSAGE = st.one_of(
    st.binary(max_size=200),
    _TEXT,
    st.builds(
        lambda frame, count, age, body, more: ("frame", frame, count, age, body, more),
        st.integers(0, 40),
        st.integers(1, 400),
        st.floats(-100, 100),
        st.binary(max_size=400),
        st.dictionaries(st.sampled_from(["skipped", "captured", "drop_rate", "rtt_ms", "size"]), _NUMBER, max_size=3),
    ),
    st.builds(lambda a, b, c: {"type": "clock", "sent_ms": a, "of_ms": b, "of_came_ms": c}, _NUMBER, _NUMBER, _NUMBER),
)


@pytest.mark.nightly("any messages, drawn at random")
@settings(examples(gate=25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(_MESSAGE, max_size=12))
def test_stream_messages_at_random_end_each_frame_once(box: Box, messages: list[Any]) -> None:
    """Whatever a device sends, the box goes on; some messages close the connection."""

    async def story() -> None:
        session = await box.join("harbour")
        async with box.device(session, "harbour") as device:
            with contextlib.suppress(ConnectionClosed):
                await _say_all(device, messages)
                await device.socket.send(json.dumps({"type": "clock", "sent_ms": 77.5}))
                while not any(message.type == "clock" and message.of_ms == 77.5 for message in device.heard):
                    await device.next()
            assert device.socket.close_code in (None, 1003, 1008, 1009)
        async with asyncio.timeout(PATIENCE_S):
            while not sums_up(shown := await box.shown(session, "harbour")):
                pass
        frames = {message[1] for message in messages if isinstance(message, tuple)}
        assert shown["sent"] <= len(frames)
        async with box.http("harbour") as client:
            assert (await client.delete(f"/v1/sessions/{session}")).status_code == 200

    asyncio.run(story())


async def _say_all(device: Device, messages: list[Any]) -> None:
    for message in messages:
        if isinstance(message, tuple):
            _, frame, count, age, body, more = message
            await device.head(frame, count, captured_ms=device.now_ms() - age, **more)
            await device.socket.send(body)
        else:
            await device.socket.send(json.dumps(message) if isinstance(message, dict) else message)


@pytest.mark.nightly("a server that is stopped")
async def test_stop_of_the_box_ends_its_streams(
    furnished: tuple[Path, dict[str, str]], box: Box, tmp_path: Path
) -> None:
    """With 1001; that a device resumes its session after a kill is told in `tests/e2e/test_devices.py`."""
    state_dir = copied(furnished[0], tmp_path / "state")
    with running_server(state_dir, APPLIANCE_GUARD__ISOLATION="none") as server:
        async with Box(server, box.keys, box.pictures).device() as device:
            await device.next()
            stopping = asyncio.create_task(asyncio.to_thread(server.stop))
            assert await device.ended() == 1001
            assert await stopping == 0


@pytest.mark.nightly("a server of its own")
async def test_frames_without_room_in_the_body_budget_are_dropped(
    furnished: tuple[Path, dict[str, str]], box: Box, tmp_path: Path
) -> None:
    """Bodies share a budget of what has come of them, whether they are waited for or not: a frame that does not fit is
    dropped with its head, and counted, a smaller one is taken; two that fit each by itself end one of the connections.
    The same over a Unix socket.
    """
    state_dir = copied(furnished[0], tmp_path / "state")
    path = tmp_path / "socket"
    settings = {"GUARD__ISOLATION": "none", "HTTP__INFLIGHT_BYTES_MAX": "65536", "HTTP__UNIX_SOCKET": str(path)}
    with running_server(state_dir, **{f"APPLIANCE_{name}": value for name, value in settings.items()}) as server:
        small = Box(server, box.keys, box.pictures)
        session = await small.join()
        async with small.device() as other, small.device(session) as device:
            await other.head(0, 50_000)  # what is only announced keeps nobody out
            await other.say(type="clock", sent_ms=1.0)
            await other.until("clock")
            await device.head(0, 60_000)
            await device.say(type="clock", sent_ms=1.0)
            await device.until("clock")
            for number, is_refused in ((1, False), (2, True)):
                await other.head(number, 50_000, **({"captured_ms": -1e9} if is_refused else {}))
                finish = await _begun(other, 40_000)
                await device.head(number, 60_000)
                dropped = await device.until("result", frame=number)
                assert (dropped.outcome, dropped.cause) == (FrameEnd.DROPPED, "limit")
                await finish()
                await other.say(type="clock", sent_ms=2.0 + number)
                await other.until("clock", of_ms=2.0 + number)
            assert (await device.answered(3, box.pictures[0])).outcome is FrameEnd.ANSWERED
            await other.head(3, 50_000)
            await device.head(4, 50_000)  # there is room for either
            await _begun(other, 45_000)
            await _begun(device, 45_000)
            dropped = await device.until("result", frame=4)
            assert (dropped.outcome, dropped.cause) == (FrameEnd.DROPPED, "limit")
            assert await device.ended() == 1008
        headers = {"Authorization": f"Bearer {box.keys['device']}"}
        address = f"ws://box/v1/sessions/{session}/stream"
        async with unix_connect(str(path), address, additional_headers=headers, **PATIENT) as socket:
            assert (await Device(socket, session).answered(5, box.pictures[1])).outcome is FrameEnd.ANSWERED
        assert (await small.shown(session))["drops"] == {"limit": 3}


async def _begun(device: Device, count: int) -> Callable[[], Awaitable[None]]:
    """Send the first bytes of a picture, and be there when the box has read them; returns what ends it too early."""
    transport, head = device.socket.transport, struct.Struct("!BBQI")
    transport.write(head.pack(0x02, 0xFF, count, 0) + bytes(count))
    with contextlib.suppress(ConnectionClosed):
        await (await device.socket.ping())

    async def finish() -> None:
        transport.write(head.pack(0x80, 0xFF, 0, 0))

    return finish


@pytest.mark.nightly("a server of its own")
async def test_stream_over_tls_answers_frames(furnished: tuple[Path, dict[str, str]], box: Box, tmp_path: Path) -> None:
    state_dir = copied(furnished[0], tmp_path / "state")
    with running_server(state_dir, APPLIANCE_GUARD__ISOLATION="none", APPLIANCE_HTTP__TLS_SELF_SIGNED="true") as server:
        context = ssl.create_default_context(cafile=str(state_dir / "tls" / "cert.pem"))
        headers = {"Authorization": f"Bearer {box.keys['device']}"}
        order = {"application": "digits", "fps": 30, "promise": LATENCY}
        async with httpx.AsyncClient(verify=context, headers=headers, timeout=PATIENCE_S) as client:
            answer = (await client.post(f"{server.url}/v1/sessions", json=order)).json()
        address = f"{server.url.replace('https', 'wss')}/v1/sessions/{answer['id']}/stream"
        async with connect(address, additional_headers=headers, ssl=context, proxy=None, **PATIENT) as socket:
            device = Device(socket, answer["id"])
            assert (await device.answered(0, box.pictures[0])).outcome is FrameEnd.ANSWERED
