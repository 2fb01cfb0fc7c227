"""A message on its way to a receiver: where it goes, what comes of it, and within which bounds."""

import asyncio
import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.api.http import certificate
from appliance.clock import SystemClock
from appliance.domain.health.conditions import Severity
from appliance.domain.notifications.messages import post_of, trial_message_of
from appliance.domain.notifications.receivers import Outcome, Receiver, ReceiverKind, SendResult
from appliance.notifications.sending import LOOKUPS_MAX, Names, Sender
from tests.fakes.waiting import until
from tests.notifications.receiving import WrittenNames, receiving

pytestmark = [pytest.mark.usefixtures("ports"), pytest.mark.anyio]
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
HERE = ["127.0.0.1/32"]


def receiver(url: str, kind: ReceiverKind = ReceiverKind.WEBHOOK, token: str = "") -> Receiver:
    return Receiver("7c2e", "harbour", "phone", kind, url, token, Severity.WARN, NOW)


async def sent_to(
    one: Receiver, private: Sequence[str] = HERE, names: Names | None = None, send_s_max: float = 10.0
) -> SendResult:
    sender = Sender(SystemClock(), private, names, send_s_max)
    return await sender.send(post_of(one, trial_message_of("box-1", NOW)), one.tenant)


async def test_message_to_each_kind_arrives_as_that_kind_wants_it() -> None:
    async with receiving() as one:
        for kind, path in ((ReceiverKind.WEBHOOK, "/hook?a=b"), (ReceiverKind.NTFY, "/t"), (ReceiverKind.GOTIFY, "")):
            sent = await sent_to(receiver(f"{one.url}{path}", kind, "token-1"))
            assert (sent.outcome, sent.status) == (Outcome.DELIVERED, 200)
    hook, topic, gotify = one.got
    assert hook.line == "POST /hook?a=b HTTP/1.1"
    assert (hook.headers["host"], hook.headers["authorization"]) == (f"127.0.0.1:{one.port}", "Bearer token-1")
    assert hook.document["event"] == "test"
    assert topic.line == "POST /t HTTP/1.1"
    assert (topic.headers["title"], topic.headers["priority"]) == ("box-1: Test message", "2")
    assert topic.body.decode().startswith("This is a test message.")
    assert gotify.line == "POST /message HTTP/1.1"
    assert (gotify.headers["x-gotify-key"], gotify.document["priority"]) == ("token-1", 2)
    assert "authorization" not in gotify.headers


async def test_private_address_is_refused_without_a_connection() -> None:
    """By its number, and behind a name; the answer does not say where the name leads."""
    async with receiving() as one:
        for url, names in ((one.url, None), (f"http://inside.example:{one.port}", WrittenNames([["127.0.0.1"]]))):
            sent = await sent_to(receiver(url), [], names)
            assert (sent.outcome, sent.status) == (Outcome.NOT_PERMITTED, None)
            assert "127.0.0.1" not in sent.detail
        assert one.connections == 0


async def test_name_is_looked_up_once_and_the_checked_address_is_the_one_connected_to() -> None:
    """A name that leads elsewhere the next time (DNS rebinding) changes nothing."""
    async with receiving() as public, receiving("127.0.0.2", port=public.port) as inside:
        names = WrittenNames([["127.0.0.1"], ["127.0.0.2"]])
        one = receiver(f"http://rebinding.example:{public.port}/hook")
        assert (await sent_to(one, names=names)).outcome is Outcome.DELIVERED
        assert names.asked == [("rebinding.example", public.port)]
        assert public.got[0].headers["host"] == f"rebinding.example:{public.port}"
        assert (await sent_to(one, names=names)).outcome is Outcome.NOT_PERMITTED
        assert inside.connections == 0


async def test_name_with_several_addresses_goes_to_one_that_is_permitted_and_answers() -> None:
    async with receiving() as one, receiving("127.0.0.2", port=one.port) as inside:
        names = WrittenNames([["127.0.0.2", "127.0.0.9", "127.0.0.1"]])
        sent = await sent_to(receiver(f"http://many.example:{one.port}"), ["127.0.0.1/32", "127.0.0.9/32"], names)
        assert sent.outcome is Outcome.DELIVERED
        assert (len(one.got), inside.connections) == (1, 0)


@pytest.mark.parametrize(
    ("answer", "outcome", "status"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", Outcome.REDIRECTED, 302),
        (b"HTTP/1.1 308 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", Outcome.REDIRECTED, 308),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", Outcome.REFUSED, 401),
        (b"HTTP/1.1 500 Broken\r\n\r\nsecret", Outcome.REFUSED, 500),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Outcome.DELIVERED, 204),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Outcome.DELIVERED, 200),  # and no end of it
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", Outcome.UNREACHABLE, None),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, Outcome.DELIVERED, 200),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Outcome.DELIVERED, 204),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10_000, Outcome.UNREACHABLE, None),
    ],
    ids=["302", "308", "401", "500", "204", "endless", "no-http", "heads", "hint", "hints"],
)
async def test_answer_of_a_receiver_decides_the_outcome_and_redirects_are_not_followed(
    answer: bytes, outcome: Outcome, status: int | None
) -> None:
    """Nothing is read of an answer but its status, and little of what comes before that."""
    async with receiving(answer=answer) as one:
        sent = await sent_to(receiver(one.url))
        assert (sent.outcome, sent.status) == (outcome, status)
        assert "secret" not in sent.detail
        assert one.connections == 1


async def test_receiver_that_does_not_answer_times_out() -> None:
    async with receiving(answer=None) as one:
        sent = await sent_to(receiver(one.url), send_s_max=0.2)
        assert (sent.outcome, sent.status) == (Outcome.TIMED_OUT, None)


async def test_receiver_where_nobody_listens_is_unreachable() -> None:
    async with receiving() as one:
        pass
    assert (await sent_to(receiver(one.url))).outcome is Outcome.UNREACHABLE


async def test_name_that_leads_nowhere_is_unreachable() -> None:
    sent = await sent_to(receiver("http://nowhere.example/"), names=WrittenNames([OSError("no such name")]))
    assert (sent.outcome, sent.detail) == (Outcome.UNREACHABLE, "it cannot be reached: no such name")


async def test_name_that_the_system_knows_is_reached() -> None:
    """As it is written in the machine's own table; one too long to be a name is not known to it."""
    async with receiving() as one:
        assert (await sent_to(receiver(f"http://localhost:{one.port}"))).outcome is Outcome.DELIVERED
    assert (await sent_to(receiver(f"http://{'a.' * 200}org/"))).outcome is Outcome.UNREACHABLE


async def test_names_that_hang_hold_up_no_other_tenant() -> None:
    """A tenant has so many lookups at once; those of others go on."""
    async with receiving() as one:
        names = WrittenNames([None])
        sender = Sender(SystemClock(), HERE, names)
        post = post_of(receiver(f"http://hangs.example:{one.port}"), trial_message_of("box-1", NOW))
        hanging = [asyncio.create_task(sender.send(post, "harbour")) for _ in range(LOOKUPS_MAX)]
        await until(lambda: len(names.asked) == LOOKUPS_MAX)
        names.answers = [["127.0.0.1"]]
        assert (await sender.send(post, "harbour")).outcome is Outcome.UNREACHABLE
        assert (await sender.send(post, "museum")).outcome is Outcome.DELIVERED
        for one_that_hangs in hanging:
            one_that_hangs.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """One would connect to what the box must not."""
    async with receiving() as one, receiving("127.0.0.2") as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert (await sent_to(receiver(one.url))).outcome is Outcome.DELIVERED
        assert proxy.connections == 0


async def test_certificate_of_a_receiver_is_verified_against_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that nobody trusted has signed, one of another name, and the right one."""
    certificate.ensure(tmp_path, ["hook.example"], SystemClock().wall_now())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / certificate.CERTIFICATE, tmp_path / certificate.KEY)
    async with receiving(tls=tls) as one:

        async def outcome(host: str) -> Outcome:
            names = WrittenNames([["127.0.0.1"]])
            return (await sent_to(receiver(f"https://{host}:{one.port}"), names=names)).outcome

        assert await outcome("hook.example") is Outcome.NOT_TRUSTED
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / certificate.AUTHORITY))
        assert await outcome("other.example") is Outcome.NOT_TRUSTED
        assert one.got == []
        assert await outcome("hook.example") is Outcome.DELIVERED


async def test_receiver_without_tls_at_an_address_with_it_is_unreachable() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        sent = await sent_to(receiver(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        assert (sent.outcome, sent.status) == (Outcome.UNREACHABLE, None)


async def test_receiver_cannot_choose_a_slow_method_of_key_exchange() -> None:
    """Large groups of integers (DHE) take the event loop for tenths of a second. Numbers are those of RFC 5246 ff."""
    offers = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(5)
        offers.set_result(await reader.readexactly(int.from_bytes(head[3:])))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        sent = await sent_to(receiver(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    assert sent.outcome is Outcome.UNREACHABLE
    offer: bytes = await offers
    rest = offer[39 + offer[38] :]  # after the session's id
    listed, extensions = rest[2 : 2 + int.from_bytes(rest[:2])], rest[2 + int.from_bytes(rest[:2]) :]
    suites = {int.from_bytes(listed[place : place + 2]) for place in range(0, len(listed), 2)}
    assert suites >= {0x1301, 0xC02F}
    assert not suites & {0x0033, 0x0039, 0x0067, 0x006B, 0x009E, 0x009F, 0xCCAA}
    assert bytes.fromhex("000a 0004 0002 0017") in extensions  # P-256 alone
