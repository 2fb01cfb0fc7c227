"""The live wall over HTTP: who may look, and what is shown of which frames."""

import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from appliance.api import wall
from appliance.demo.zoo import toys
from tests.api.stand import IMAGE, Stand, StandWith, good, refusal, shown_when
from tests.api.v1.joining import LATENCY, joined

pytestmark = pytest.mark.anyio


@pytest.fixture
def picture(digits: toys.Digits) -> bytes:
    return min(digits.evaluation.glob("*.png")).read_bytes()


@pytest.fixture
async def watched(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """A key of harbour that looks at its own wall, with looks that last as long as a busy machine may take."""
    monkeypatch.setattr(wall, "LOOK_S", 600.0)
    harbour = stand.client("harbour")
    await good(harbour.put("/v1/wall/viewers", json={"viewers": "tenant"}))
    assert (await good(harbour.get("/v1/wall"))) == {"viewers": "tenant", "may_look": True, "streams": []}
    yield harbour
    await good(harbour.delete("/v1/wall"))


async def sent(stand: Stand, picture: bytes) -> str:
    """A session of harbour that has sent a frame; returns its id."""
    live = await joined(stand, LATENCY)
    await good(post(stand, live.session.id, 0, picture))
    return live.session.id


async def post(stand: Stand, session: str, number: int, body: bytes) -> httpx.Response:
    path = f"/v1/sessions/{session}/frames"
    return await stand.client("device").post(path, content=body, headers={"X-Frame": str(number)})


async def test_wall_shows_nothing_until_the_tenant_allows_it(stand: Stand, picture: bytes) -> None:
    """Neither its own keys nor the operator see a frame, and none is kept."""
    harbour = stand.client("harbour")
    for _ in range(2):
        for viewer in (harbour, stand.client("admin", **{"X-Tenant": "harbour"})):
            shown = {"viewers": "nobody", "may_look": False, "streams": []}
            assert await good(viewer.get("/v1/wall")) == shown
            session = await sent(stand, picture)
            assert refusal(await viewer.get(f"/v1/wall/{session}/frame")) == (403, "forbidden")
    await good(harbour.put("/v1/wall/viewers", json={"viewers": "tenant"}))
    assert (await good(harbour.get("/v1/wall")))["streams"] == []


async def test_wall_shows_last_frame_of_a_session_with_its_answer(
    stand: Stand, watched: httpx.AsyncClient, picture: bytes
) -> None:
    session = await sent(stand, picture)
    (first,) = (await good(watched.get("/v1/wall")))["streams"]
    fields = {key: first[key] for key in ("stream", "name", "application", "pipeline", "frame", "outcome", "cause")}
    assert fields == {
        "stream": session,
        "name": "cam",
        "application": "digits",
        "pipeline": None,
        "frame": 0,
        "outcome": "answered",
        "cause": None,
    }
    assert first["picture"]
    answer = await good(post(stand, session, 3, picture))
    (shown,) = (await good(watched.get("/v1/wall")))["streams"]
    assert (shown["frame"], shown["answer"]["labels"]) == (3, answer["labels"])
    assert shown["number"] != first["number"]
    fetched = await watched.get(f"/v1/wall/{session}/frame")
    assert (fetched.content, fetched.headers["content-type"]) == (picture, "image/png")
    assert fetched.headers["cache-control"] == "no-store"
    assert fetched.headers["x-content-type-options"] == "nosniff"


async def test_wall_shows_frame_without_picture_where_tensors_or_no_picture_came(
    stand: Stand, watched: httpx.AsyncClient, picture: bytes
) -> None:
    session = await sent(stand, picture)
    headers = {"X-Session": session, "X-Frame": "3"}
    await good(stand.client("device").post("/v2/models/digits/infer", json=IMAGE, headers=headers))
    (shown,) = (await good(watched.get("/v1/wall")))["streams"]
    assert (shown["frame"], shown["picture"], shown["answer"]) == (3, False, None)
    assert refusal(await watched.get(f"/v1/wall/{session}/frame")) == (404, "unknown-session")
    assert (await post(stand, session, 6, b"\xff\xd8 no picture")).status_code == 422
    (shown,) = (await good(watched.get("/v1/wall")))["streams"]
    assert (shown["frame"], shown["picture"], shown["outcome"], shown["cause"]) == (6, False, "dropped", "bad-media")


async def test_frame_is_gone_once_the_viewer_leaves_the_session_ends_or_the_tenant_withdraws(
    stand: Stand, watched: httpx.AsyncClient, picture: bytes
) -> None:
    """The next viewer sees only frames that come later."""
    session = await sent(stand, picture)
    await good(watched.get(f"/v1/sessions/{session}"))
    assert (await watched.get(f"/v1/wall/{session}/frame")).status_code == 200
    await good(watched.delete("/v1/wall"))
    assert (await watched.get(f"/v1/wall/{session}/frame")).status_code == 404
    assert (await good(watched.get("/v1/wall")))["streams"] == []
    await good(post(stand, session, 3, picture))
    assert (await watched.get(f"/v1/wall/{session}/frame")).status_code == 200
    for viewers in ("nobody", "tenant"):
        await good(watched.put("/v1/wall/viewers", json={"viewers": viewers}))
    assert (await watched.get(f"/v1/wall/{session}/frame")).status_code == 404
    await good(watched.get("/v1/wall"))
    await good(post(stand, session, 6, picture))
    assert len((await good(watched.get("/v1/wall")))["streams"]) == 1
    await good(watched.delete(f"/v1/sessions/{session}"))
    assert (await good(watched.get("/v1/wall")))["streams"] == []
    assert (await watched.get(f"/v1/wall/{session}/frame")).status_code == 404


async def test_frames_are_seen_by_no_other_tenant_and_no_device(
    stand: Stand, watched: httpx.AsyncClient, picture: bytes
) -> None:
    """Another tenant that may look at its own wall sees its own only; its leaving takes nothing from others."""
    session = await sent(stand, picture)
    museum, device = stand.client("museum"), stand.client("device")
    await good(museum.put("/v1/wall/viewers", json={"viewers": "operator"}))
    assert (await good(museum.get("/v1/wall")))["streams"] == []
    assert refusal(await museum.get(f"/v1/wall/{session}/frame")) == (404, "unknown-session")
    await good(museum.delete("/v1/wall"))
    assert refusal(await museum.get("/v1/wall", headers={"X-Tenant": "harbour"})) == (403, "forbidden")
    for method, path in (("GET", "/v1/wall"), ("DELETE", "/v1/wall"), ("GET", f"/v1/wall/{session}/frame")):
        assert refusal(await device.request(method, path)) == (403, "forbidden")
    assert refusal(await device.put("/v1/wall/viewers", json={"viewers": "tenant"})) == (403, "forbidden")
    assert len((await good(watched.get("/v1/wall")))["streams"]) == 1


async def test_operator_sees_frames_only_where_the_tenant_allows_it(
    stand: Stand, watched: httpx.AsyncClient, picture: bytes
) -> None:
    """An admin key cannot allow it itself, nor widen what the tenant said; it may withdraw."""
    session, operator = await sent(stand, picture), stand.client("admin", **{"X-Tenant": "harbour"})
    assert await good(operator.get("/v1/wall")) == {"viewers": "tenant", "may_look": False, "streams": []}
    assert refusal(await operator.get(f"/v1/wall/{session}/frame")) == (403, "forbidden")
    for viewers in ("operator", "tenant"):
        assert refusal(await operator.put("/v1/wall/viewers", json={"viewers": viewers})) == (403, "forbidden")
    await good(watched.put("/v1/wall/viewers", json={"viewers": "operator"}))
    await good(operator.get("/v1/wall"))
    await good(post(stand, session, 3, picture))
    assert (await operator.get(f"/v1/wall/{session}/frame")).content == picture
    await good(operator.put("/v1/wall/viewers", json={"viewers": "nobody"}))
    assert not (await good(watched.get("/v1/wall")))["may_look"]
    own = stand.client("admin")
    await good(own.put("/v1/wall/viewers", json={"viewers": "tenant"}))
    assert (await good(own.get("/v1/wall")))["may_look"]


async def test_viewers_survive_a_new_quota_and_a_restart_and_are_audited(stand_with: StandWith) -> None:
    """To look and to leave are no changes, and leave no entry."""
    async with stand_with() as stand:
        harbour, admin = stand.client("harbour"), stand.client("admin")
        await good(harbour.put("/v1/wall/viewers", json={"viewers": "operator"}))
        await good(admin.put("/v1/tenants/harbour", json={"quota": {"requests_per_s": 100}}))
        assert (await good(harbour.get("/v1/wall")))["viewers"] == "operator"
        await good(harbour.delete("/v1/wall"))
        entries = (await good(harbour.get("/v1/audit")))["items"]
        assert [one["path"] for one in entries if one["path"].startswith("/v1/wall")] == ["/v1/wall/viewers"]
    async with stand_with() as stand:
        assert (await good(stand.client("harbour").get("/v1/wall")))["viewers"] == "operator"


async def test_frames_on_the_wall_are_written_to_no_file(
    stand: Stand, watched: httpx.AsyncClient, picture: bytes
) -> None:
    """Neither the database nor a backup nor any other file of the state folder has the picture."""
    marked = picture + b"only-on-the-wall"
    session = await sent(stand, marked)
    assert (await watched.get(f"/v1/wall/{session}/frame")).content == marked
    admin = stand.client("admin")
    await good(admin.post("/v1/backups"))
    await shown_when(admin, "/v1/backups", lambda page: page["items"][0]["state"] != "making")
    assert stand.appliance.running().wall.picture("harbour", session) == marked
    with sqlite3.connect(stand.state_dir / "appliance.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    files: list[Any] = [path for path in stand.state_dir.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if b"only-on-the-wall" in path.read_bytes()] == []
