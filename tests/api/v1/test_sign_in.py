"""A browser signs in with a key, and from then on its cookie opens `/v1` to the pages of the box alone."""

from typing import Any

import httpx
import pytest

from appliance.api.auth.sign_ins import PER_KEY_MAX
from tests.api.stand import Asking, Stand, StandWith, good, refusal

pytestmark = pytest.mark.anyio
OWN = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}


def browser(stand: Stand, *, url: str = "http://localhost", at: str = "127.0.0.1", **headers: str) -> httpx.AsyncClient:
    """A page of the box, with a jar for cookies."""
    transport = httpx.ASGITransport(stand.appliance.asgi, client=(at, 4711))
    origin = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
    made = httpx.AsyncClient(transport=transport, base_url=url, headers=origin | headers, timeout=60)
    stand.open_clients.append(made)
    return made


async def signing_in(stand: Stand, who: str = "harbour", **more: Any) -> httpx.Response:
    """What a page is answered that shows this key."""
    return await browser(stand, **more).post("/v1/sign-in", json={"key": stand.keys[who]})


async def signed_in(stand: Stand, who: str = "harbour", **more: Any) -> httpx.AsyncClient:
    page = browser(stand, **more)
    answer = await page.post("/v1/sign-in", json={"key": stand.keys[who]})
    assert (answer.status_code, answer.content) == (204, b"")
    return page


async def link_of(client: httpx.AsyncClient) -> str:
    """The token of a new link."""
    path, _, token = (await good(client.post("/v1/sign-in/links")))["path"].partition("=")
    assert path == "/#sign-in"
    return str(token)


def events_of(stand: Stand, page: httpx.AsyncClient) -> Asking:
    """The event stream of a page that is signed in."""
    headers = OWN | {"Host": "localhost", "Cookie": f"appliance={page.cookies['appliance']}"}
    return Asking(stand.appliance.asgi, "GET", "/v1/events", headers, client=("127.0.0.1", 4711))


async def test_sign_in_with_a_key_gives_a_cookie_until_sign_out(stand: Stand) -> None:
    """What the cookie opens, and the end of it."""
    page = browser(stand)
    assert (await page.get("/v1/sign-in")).json() is None
    assert (await page.get("/v1/models")).json()["type"] == "/problems/missing-key"
    answer = await page.post("/v1/sign-in", json={"key": stand.keys["harbour"]})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("appliance=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert (await page.get("/v1/sign-in")).json() == {"tenant": "harbour", "role": "tenant"}
    assert [one["name"] for one in (await page.get("/v1/models")).json()["items"]] == ["adding", "digits"]
    assert (await page.get("/metrics")).status_code == 200
    assert (await page.post("/v1/tenants/harbour/keys", json={"label": "made by a page"})).status_code == 201
    kept = dict(page.cookies)
    assert (await page.delete("/v1/sign-in")).status_code == 204
    assert (await page.get("/v1/sign-in")).json() is None
    page.cookies.update(kept)  # a browser that did not forget it
    assert (await page.get("/v1/models")).json()["type"] == "/problems/wrong-key"


async def test_cookie_does_not_open_v2(stand: Stand) -> None:
    """`/v2` is for keys."""
    page = await signed_in(stand)
    assert (await page.post("/v2/repository/index")).status_code == 401
    assert (await page.post("/v2/models/digits/infer", json={"inputs": []})).status_code == 401


async def test_sign_in_with_a_device_key_is_refused(stand: Stand) -> None:
    """A device key calls applications, and its device has no browser."""
    answer = await signing_in(stand, "device")
    assert refusal(answer) == (403, "forbidden")
    assert "set-cookie" not in answer.headers


async def test_cookie_of_an_admin_acts_for_the_tenant_in_x_tenant(stand: Stand) -> None:
    """As with the key itself; a tenant's browser does not."""
    page = await signed_in(stand, "admin")
    assert len((await page.get("/v1/models", headers={"X-Tenant": "harbour"})).json()["items"]) == 2
    other = await signed_in(stand, "museum")
    assert (await other.get("/v1/models", headers={"X-Tenant": "harbour"})).status_code == 403
    assert (await other.get("/v1/tenants/harbour")).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "https://localhost"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Host": "localhost.evil.example", "Origin": "http://localhost.evil.example"},
        {"Host": "localhost@evil.example", "Origin": "http://localhost@evil.example"},
        {"Host": "", "Origin": "http://"},
    ],
    ids=str,
)
async def test_cookie_requests_of_foreign_origins_are_refused(stand: Stand, headers: dict[str, str]) -> None:
    """Another site, another port, another scheme, and a name that was made to lead to the box."""
    page = await signed_in(stand)
    for answer in (
        await page.post("/v1/sign-in", json={"key": stand.keys["harbour"]}, headers=headers),
        await page.get("/v1/sign-in", headers=headers),
        await page.get("/v1/models", headers=headers),
        await page.post("/v1/tenants/harbour/keys", json={}, headers=headers),
        await page.delete("/v1/sign-in", headers=headers),
    ):
        assert refusal(answer) == (403, "foreign-origin")
        assert "set-cookie" not in answer.headers
    assert (await page.get("/v1/models")).status_code == 200


async def test_cookie_request_that_changes_needs_an_origin(stand: Stand) -> None:
    """Over plain HTTP some browsers say nothing of the site; reading is harmless then, since no other page sees it."""
    page = await signed_in(stand)
    del page.headers["Origin"]
    del page.headers["Sec-Fetch-Site"]
    assert (await page.get("/v1/models")).status_code == 200
    answer = await page.post("/v1/tenants/harbour/keys", json={})
    assert answer.json()["type"] == "/problems/foreign-origin"
    typed = {"Sec-Fetch-Site": "none"}
    assert (await page.get("/metrics", headers=typed)).status_code == 200
    assert (await page.delete("/v1/sign-in", headers=typed)).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "[::1]:8080", "10.0.0.5", "LOCALHOST", "localhost."])
async def test_sign_in_by_an_address_or_local_name_of_the_box_is_accepted(stand: Stand, host: str) -> None:
    """An address cannot be made to lead elsewhere."""
    await signed_in(stand, Host=host, Origin=f"http://{host.lower()}")


async def test_sign_in_by_a_configured_host_name_is_accepted(stand_with: StandWith) -> None:
    """A name that only the operator's network knows."""
    async with stand_with(security={"host_names": ("Box.Lan",)}) as stand:
        page = await signed_in(stand, url="http://box.lan")
        assert (await page.get("/v1/models")).status_code == 200


async def test_sign_in_from_another_machine_needs_tls(stand: Stand) -> None:
    """Over plain HTTP the key would be read on the way; under TLS the cookie is the box's own and secure."""
    assert refusal(await signing_in(stand, at="10.0.0.7", url="http://10.0.0.5")) == (403, "tls-required")
    page = browser(stand, at="10.0.0.7", url="https://10.0.0.5")
    answer = await page.post("/v1/sign-in", json={"key": stand.keys["harbour"]})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-appliance=")
    assert {"Secure", "Path=/"} <= set(cookie.split("; "))
    assert "Domain" not in cookie
    assert (await page.get("/v1/models")).status_code == 200


async def test_sign_in_without_tls_may_be_allowed_by_setting(stand_with: StandWith) -> None:
    """On a network that its operator trusts."""
    async with stand_with(security={"sign_in_without_tls": True}) as stand:
        await signed_in(stand, at="10.0.0.7", url="http://10.0.0.5")


async def test_sign_in_failures_are_limited_by_address(stand_with: StandWith) -> None:
    """Wrong keys and wrong cookies; a right key is served all the same."""
    async with stand_with(security={"failed_keys_per_min": 3}) as stand:
        page = browser(stand)
        for _ in range(2):
            assert (await page.post("/v1/sign-in", json={"key": "ea_guess"})).status_code == 401
        page.cookies.set("appliance", "guess")
        assert (await page.get("/v1/models")).status_code == 401
        assert (await page.get("/v1/models")).status_code == 429
        assert (await page.post("/v1/sign-in", json={"key": "ea_guess"})).status_code == 429
        await signed_in(stand)


async def test_sign_in_ends_with_its_revoked_key(stand: Stand) -> None:
    """The next request is refused, and an open event stream ends."""
    admin = stand.client()
    made = (await admin.post("/v1/tenants/harbour/keys", json={})).json()
    page = browser(stand)
    await page.post("/v1/sign-in", json={"key": made["key"]})
    async with events_of(stand, page) as events:
        assert await events.status() == 200
        assert await events.piece() == b": still here\n\n"
        assert (await admin.delete(f"/v1/tenants/harbour/keys/{made['id']}")).status_code == 200
        assert (await page.get("/v1/models")).json()["type"] == "/problems/wrong-key"
        assert (await page.get("/v1/sign-in")).json() is None
        stand.appliance.running().telemetry.emit("variant loaded", tenant="harbour")
        await events.ended()
        assert events.pieces.empty()


async def test_sign_out_ends_the_event_stream_of_the_browser(stand: Stand) -> None:
    """The key is good, and other clients go on with it."""
    page = await signed_in(stand)
    other = {"Authorization": f"Bearer {stand.keys['harbour']}"}
    async with (
        events_of(stand, page) as events,
        Asking(stand.appliance.asgi, "GET", "/v1/events", other) as going_on,
    ):
        assert (await events.piece(), await going_on.piece()) == (b": still here\n\n", b": still here\n\n")
        assert (await page.delete("/v1/sign-in")).status_code == 204
        stand.appliance.running().telemetry.emit("variant loaded", tenant="harbour")
        await events.ended()
        assert events.pieces.empty()
        assert b"variant loaded" in await going_on.piece()


async def test_sign_in_survives_a_restart(stand_with: StandWith) -> None:
    """Of the cookie only its digest is on the disk, for the owner alone; a file that is damaged ends the sign-ins."""
    async with stand_with() as stand:
        cookie = (await signed_in(stand)).cookies["appliance"]
    file = stand.state_dir / "sign_ins.json"
    assert cookie not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    async with stand_with() as stand:
        page = browser(stand)
        page.cookies.set("appliance", cookie)
        assert (await page.get("/v1/sign-in")).json() == {"tenant": "harbour", "role": "tenant"}
        assert (await page.get("/v1/models")).status_code == 200
    file.write_text('[{"sha256": 1}')
    async with stand_with() as stand:
        await signed_in(stand)


async def test_sign_in_body_that_is_large_or_wrong_is_refused(stand: Stand) -> None:
    """The body is taken without a key, so it must be small; and it is JSON with a key."""
    page = browser(stand)
    assert (await page.post("/v1/sign-in", content=b"x" * 1025)).status_code == 413
    for body in ({}, {"key": 7}, {"key": "ea_\n"}, {"key": "k", "more": 1}):
        assert (await page.post("/v1/sign-in", json=body)).status_code == 422


async def test_sign_ins_of_a_key_are_bounded_and_the_oldest_ends(stand: Stand) -> None:
    first = await signed_in(stand)
    others = [await signed_in(stand) for _ in range(PER_KEY_MAX)]
    assert (await first.get("/v1/sign-in")).json() is None
    assert (await others[0].get("/v1/sign-in")).json() is not None


async def test_sign_in_with_another_key_ends_the_previous_sign_in(stand: Stand) -> None:
    """In the same browser."""
    page = await signed_in(stand)
    before = page.cookies["appliance"]
    await page.post("/v1/sign-in", json={"key": stand.keys["museum"]})
    assert (await page.get("/v1/sign-in")).json()["tenant"] == "museum"
    page.cookies.set("appliance", before, domain="localhost.local", path="/")
    assert (await page.get("/v1/sign-in")).json() is None


@pytest.mark.parametrize("host", ["[", "[::1", "]", "[nothing]"])
async def test_sign_in_by_a_malformed_host_is_refused(stand: Stand, host: str) -> None:
    assert refusal(await signing_in(stand, Host=host)) == (403, "foreign-origin")


async def test_sign_in_link_works_once_in_place_of_a_key(stand: Stand) -> None:
    """Only a digest of the token is kept. Device keys make no links."""
    token = await link_of(stand.client("harbour"))
    page, other = browser(stand), browser(stand)
    assert (await page.post("/v1/sign-in", json={"link": token})).status_code == 204
    assert (await page.get("/v1/sign-in")).json() == {"tenant": "harbour", "role": "tenant"}
    assert (await other.post("/v1/sign-in", json={"link": token})).json()["type"] == "/problems/wrong-key"
    assert (await other.get("/v1/sign-in")).json() is None
    assert (await stand.client("device").post("/v1/sign-in/links")).status_code == 403
    for order in ({}, {"key": stand.keys["harbour"], "link": token}):
        assert (await other.post("/v1/sign-in", json=order)).status_code == 422
    audited = (await stand.client().get("/v1/audit")).text
    assert token not in audited


async def test_sign_in_link_made_by_a_page_is_as_old_as_its_sign_in(stand: Stand) -> None:
    """A cookie does not live on in the cookies of its links; the key itself makes links without an age."""
    management, _ = await stand.appliance.management.get()
    sign_ins = management.box.browsers.sign_ins
    page, phone, other = await signed_in(stand), browser(stand), browser(stand)
    token = await link_of(page)
    assert (await phone.post("/v1/sign-in", json={"link": token})).status_code == 204
    began_at = sign_ins.began_at(page.cookies["appliance"])
    assert began_at is not None
    assert sign_ins.began_at(phone.cookies["appliance"]) == began_at
    token = await link_of(stand.client("harbour"))
    assert (await other.post("/v1/sign-in", json={"link": token})).status_code == 204
    assert sign_ins.began_at(other.cookies["appliance"]) != began_at


async def test_sign_in_link_keeps_the_rules_of_tls_and_origin(stand: Stand) -> None:
    token = await link_of(stand.client())
    far = browser(stand, at="10.0.0.9")
    assert (await far.post("/v1/sign-in", json={"link": token})).json()["type"] == "/problems/tls-required"
    foreign = browser(stand, Origin="https://example.org")
    assert (await foreign.post("/v1/sign-in", json={"link": token})).json()["type"] == "/problems/foreign-origin"
    assert (await browser(stand).post("/v1/sign-in", json={"link": token})).status_code == 204
