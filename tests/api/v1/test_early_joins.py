"""Devices that join before the framework of `/v1` is there."""

import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest

from appliance import lazy_management
from appliance.api.v1 import early_joins
from tests.api.stand import Stand, StandWith
from tests.fakes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("processes")]

ORDER = {
    "application": "digits",
    "name": "cam",
    "fps": 30,
    "promise": {"kind": "latency", "slo_ms": 60_000, "rate_rps": 10},
}


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Once it is set the framework may be imported."""
    may_come, come = threading.Event(), lazy_management.import_management

    def late() -> ModuleType:
        may_come.wait()
        return come()

    monkeypatch.setattr(lazy_management, "import_management", late)
    return may_come


@pytest.fixture
async def early(stand_with: StandWith, framework: threading.Event) -> AsyncIterator[Stand]:
    """A box that serves, and that nothing manages yet."""
    async with stand_with() as made:
        yield made
        framework.set()


def stored(stand: Stand) -> set[str]:
    """The sessions that a restart would find."""
    with closing(sqlite3.connect(stand.state_dir / "appliance.db")) as database:
        return {id for (id,) in database.execute("SELECT id FROM session")}


async def test_early_join_is_answered_before_the_framework_is_there(early: Stand, framework: threading.Event) -> None:
    """As the framework shows it then, and with the headers of every answer."""
    device = early.client("device")
    joined = await device.post("/v1/sessions", json=ORDER)
    framework.set()
    assert (joined.status_code, joined.json()["state"]) == (201, "served")
    assert joined.headers["content-type"] == "application/json"
    assert joined.headers["x-request-id"]
    assert joined.headers["x-content-type-options"] == "nosniff"
    shown = (await device.get(f"/v1/sessions/{joined.json()['id']}")).json()
    same = ("id", "tenant", "application", "name", "fps", "promise")
    assert {name: shown[name] for name in same} == {name: joined.json()[name] for name in same}
    assert shown.keys() == joined.json().keys()


async def test_early_join_is_stored_and_audited_once_there_is_a_store(early: Stand, framework: threading.Event) -> None:
    """The join of a device key has no entry, as ever."""
    ids = [(await early.client(who).post("/v1/sessions", json=ORDER)).json()["id"] for who in ("harbour", "device")]
    framework.set()
    assert (await early.client().get("/v1/health")).status_code == 200
    assert stored(early) == set(ids)
    entries = (await early.client().get("/v1/audit")).json()["items"]
    joins = [entry for entry in entries if entry["path"] == "/v1/sessions"]
    assert [(entry["subject"], entry["actor"]["role"]) for entry in joins] == [("cam", "tenant")]
    assert (joins[0]["action"], joins[0]["change"]) == ("Join: ask for a promise", ORDER)


async def test_early_join_is_stored_by_a_stop_that_comes_at_once(stand_with: StandWith) -> None:
    """Nothing was imported yet of what stores it."""
    async with stand_with() as stand:
        joined = await stand.client("device").post("/v1/sessions", json=ORDER)
        assert joined.status_code == 201
    assert stored(stand) == {joined.json()["id"]}


async def test_session_that_ends_before_there_is_a_store_is_not_stored(
    early: Stand, framework: threading.Event
) -> None:
    sessions = early.appliance.running().sessions
    id = (await early.client("device").post("/v1/sessions", json=ORDER)).json()["id"]
    await sessions.end(sessions.live[id])
    kept = (await early.client("device").post("/v1/sessions", json=ORDER)).json()["id"]
    framework.set()
    await until(lambda: stored(early) == {kept})


@pytest.mark.parametrize(
    ("sent", "kind", "status", "slug"),
    [
        (b'{"fps": 30}', "application/json", 422, "invalid-request"),
        (b'{"fps": ', "application/json", 422, "invalid-request"),
        (b"fps=30", "application/x-www-form-urlencoded", 422, "invalid-request"),
        (b'{"name": "%b"}' % (b"x" * early_joins.BYTES_MAX), "application/json", 422, "invalid-request"),
    ],
)
async def test_early_join_with_an_odd_body_is_answered_by_the_framework(
    early: Stand, framework: threading.Event, sent: bytes, kind: str, status: int, slug: str
) -> None:
    """The same as at any other time: the framework reads the body from its beginning."""
    framework.set()
    device = early.client("device")
    answers: list[tuple[int, Any]] = []
    for _ in range(2):
        answer = await device.post("/v1/sessions", content=sent, headers={"Content-Type": kind})
        answers.append((answer.status_code, answer.json()))
    assert answers[0] == answers[1]
    assert (answers[0][0], answers[0][1]["type"]) == (status, f"/problems/{slug}")


async def test_early_join_that_is_refused_gets_the_problem_of_the_framework(
    early: Stand, framework: threading.Event
) -> None:
    device, order = early.client("device"), ORDER | {"application": "unknown"}
    first = await device.post("/v1/sessions", json=order)
    framework.set()
    assert (await device.get("/v1/sessions")).status_code == 200
    then = await device.post("/v1/sessions", json=order)
    assert (first.status_code, first.json()) == (then.status_code, then.json())
    assert first.json()["type"] == "/problems/unknown-application"
    assert (await early.client(None).post("/v1/sessions", json=ORDER)).status_code == 401
