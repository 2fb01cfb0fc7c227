"""Receivers of notifications over REST, and a trouble that is told to them by a running box."""

from contextlib import closing
from sqlite3 import connect
from typing import Any

import httpx
import pytest

from appliance.domain.notifications.receivers import FAILING_FROM
from appliance.notifications import notifications
from tests.api.stand import IMAGE, Stand, StandWith, good, made_key, refusal, shown_when
from tests.fakes.waiting import until
from tests.notifications.receiving import TAKEN, receiving
from tests.troubles import ASKED

pytestmark = [pytest.mark.usefixtures("ports"), pytest.mark.anyio]
PATH = "/v1/notifications"
HERE = {"notifications": {"private_addresses": ["127.0.0.0/8"]}}
TOPIC = {"name": "phone", "kind": "ntfy", "url": "https://ntfy.example.org/topic-secret", "token": "token-secret"}


async def added(client: httpx.AsyncClient, **order: Any) -> dict[str, Any]:
    """Return a receiver that was added."""
    receiver: dict[str, Any] = await good(client.post(PATH, json=TOPIC | order))
    return receiver


async def names(client: httpx.AsyncClient, query: str = "") -> set[str]:
    """Return the names of the receivers that a key sees."""
    return {one["name"] for one in (await good(client.get(PATH + query)))["items"]}


async def break_promise(harbour: httpx.AsyncClient) -> None:
    await good(harbour.patch("/v1/applications/digits", json={"latency_slo_ms": 0.001}))
    for _ in range(ASKED):
        await harbour.post("/v2/models/digits/infer", json=IMAGE)
    await good(harbour.get("/v1/health"))


async def test_broken_promise_is_told_to_its_tenant_and_the_operator(stand_with: StandWith) -> None:
    """In the form of each kind; another tenant hears nothing."""
    async with (
        receiving() as phone,
        receiving() as hall,
        receiving() as operator,
        stand_with(**HERE) as stand,
    ):
        harbour, museum, admin = stand.client("harbour"), stand.client("museum"), stand.client()
        await added(harbour, url=f"{phone.url}/topic")
        await added(museum, kind="webhook", url=hall.url)
        await added(admin, kind="gotify", url=operator.url, of_box=True)
        await break_promise(harbour)
        await until(lambda: phone.got and operator.got)
        topic, gotify = phone.got[0], operator.got[0]
        assert (topic.line, topic.headers["authorization"]) == ("POST /topic HTTP/1.1", "Bearer token-secret")
        assert topic.headers["priority"] == "4"
        assert topic.body.decode().startswith("Began: Application harbour/digits does not keep its SLO.")
        assert "0 of the last" in topic.body.decode()
        assert gotify.headers["x-gotify-key"] == "token-secret"
        assert "Application harbour/digits does not keep its SLO." in gotify.document["message"]
        assert hall.got == []
        shown = await shown_when(harbour, PATH, lambda listed: listed["items"][0]["state"] == "well")
        assert shown["items"][0]["last"]["status"] == 200


async def test_receiver_is_listed_without_address_and_token_and_they_are_in_no_log_nor_audit(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    harbour = stand.client("harbour")
    receiver = await added(harbour)
    assert receiver | {"id": "", "created_at": ""} == {
        "id": "",
        "tenant": "harbour",
        "name": "phone",
        "kind": "ntfy",
        "origin": "https://ntfy.example.org",
        "has_token": True,
        "severity_min": "warn",
        "created_at": "",
        "state": "new",
        "last": None,
        "failures": 0,
    }
    assert await good(harbour.get(f"{PATH}/{receiver['id']}")) == receiver
    wrong = await harbour.post(PATH, json=TOPIC | {"url": "https://user:secret@example.org/"})
    assert refusal(wrong) == (422, "bad-receiver")
    audit = await good(stand.client().get("/v1/audit"))
    entry = next(one for one in audit["items"] if one["path"] == PATH)
    assert (entry["subject"], entry["change"]) == ("phone", None)
    told = [await harbour.get(PATH), await stand.client().get("/v1/settings"), await stand.client().get("/v1/audit")]
    assert "secret" not in "".join([wrong.text, *(one.text for one in told), *capsys.readouterr()])


async def test_private_address_is_refused_until_the_operator_permits_its_network(stand_with: StandWith) -> None:
    async with receiving() as one:
        async with stand_with() as stand:
            receiver = await added(stand.client("harbour"), url=one.url)
            sent = await good(stand.client("harbour").post(f"{PATH}/{receiver['id']}/test"))
            assert (sent["outcome"], sent["status"]) == ("not-permitted", None)
            assert one.connections == 0
        async with stand_with(**HERE) as stand:
            sent = await good(stand.client("harbour").post(f"{PATH}/{receiver['id']}/test"))
            assert (sent["outcome"], sent["status"], len(one.got)) == ("delivered", 200, 1)


async def test_receivers_stay_over_a_restart_and_go_with_their_tenant(stand_with: StandWith) -> None:
    async with receiving() as one:
        async with stand_with(**HERE) as stand:
            admin = stand.client()
            await good(admin.post("/v1/tenants", json={"name": "pier"}))
            pier = stand.client(key=await made_key(admin, "pier"))
            await added(pier, name="pier", url=one.url)
            await added(admin, name="operator", url=one.url, of_box=True)
        async with stand_with(**HERE) as stand:
            admin = stand.client()
            assert await names(admin, "?tenant=*") == {"pier", "operator"}
            listed = (await good(admin.get(f"{PATH}?tenant=*")))["items"]
            for receiver in listed:
                assert (await good(admin.post(f"{PATH}/{receiver['id']}/test")))["outcome"] == "delivered"
            await good(admin.delete("/v1/tenants/pier"))
            assert await names(admin, "?tenant=*") == {"operator"}
            gone = next(one["id"] for one in listed if one["name"] == "pier")
            assert refusal(await admin.post(f"{PATH}/{gone}/test")) == (404, "unknown-receiver")
        with closing(connect(stand.state_dir / "appliance.db")) as database:
            assert database.execute("SELECT count(*) FROM receiver").fetchone() == (1,)


async def test_receivers_of_others_are_not_there_for_a_tenant(stand: Stand) -> None:
    """An admin sees those of the tenant in which it acts, and the box's; a device none."""
    harbour, museum, admin = stand.client("harbour"), stand.client("museum"), stand.client()
    own = await added(harbour, name="own")
    box = await added(admin, name="operator", of_box=True)
    assert (own["tenant"], box["tenant"]) == ("harbour", None)
    assert await names(harbour) == {"own"}
    assert await names(museum) == set()
    assert await names(admin) == {"operator"}
    assert await names(stand.client("admin", **{"X-Tenant": "harbour"})) == {"own", "operator"}
    for receiver in (own["id"], box["id"], "no-such-id"):
        for answer in (
            museum.get(f"{PATH}/{receiver}"),
            museum.delete(f"{PATH}/{receiver}"),
            museum.post(f"{PATH}/{receiver}/test"),
        ):
            assert refusal(await answer) == (404, "unknown-receiver")
    assert refusal(await museum.get(f"{PATH}?tenant=*")) == (403, "forbidden")
    assert refusal(await museum.post(PATH, json=TOPIC | {"of_box": True})) == (403, "forbidden")
    assert refusal(await stand.client("device").get(PATH)) == (403, "forbidden")
    assert await good(harbour.delete(f"{PATH}/{own['id']}")) == {"deleted": own["id"]}
    assert await names(harbour) == set()


async def test_tenant_has_a_few_receivers_at_most(stand: Stand) -> None:
    """As many of the box beside them."""
    admin = stand.client()
    for of_box in (False, True):
        for _ in range(8):
            await added(admin, of_box=of_box)
        assert refusal(await admin.post(PATH, json=TOPIC | {"of_box": of_box})) == (429, "quota-exceeded")


async def test_receiver_to_which_nothing_arrives_is_a_condition_of_its_tenant(
    stand_with: StandWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what the receiver answers; it ends with a message that arrives."""
    monkeypatch.setattr(notifications, "TESTS_APART_S", 0)
    broken = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    async with receiving(answer=broken) as one, stand_with(**HERE) as stand:
        harbour = stand.client("harbour")
        test = f"{PATH}/{(await added(harbour, url=one.url))['id']}/test"
        for _ in range(FAILING_FROM):
            sent = await good(harbour.post(test))
            assert (sent["outcome"], sent["status"]) == ("refused", 404)
        condition, *others = (await good(harbour.get("/v1/health")))["conditions"]
        assert others == []
        assert (condition["id"], condition["text"]) == ("receiver-failing", "Notifications to phone do not arrive.")
        assert condition["detail"] == "it refused the message (HTTP 404)"
        assert (await good(stand.client("museum").get("/v1/health")))["conditions"] == []
        one.answer = TAKEN
        await good(harbour.post(test))
        assert (await good(harbour.get("/v1/health")))["conditions"] == []
