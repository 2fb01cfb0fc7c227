"""The history over HTTP: figures and stays, each tenant's own, and questions that cannot be answered."""

import datetime
from typing import Any

import pytest

from tests.api.stand import IMAGE, Stand, good, shown_when

pytestmark = pytest.mark.anyio


async def ask(stand: Stand, who: str = "admin", path: str = "/v1/history", **query: Any) -> dict[str, Any]:
    answer = await good(stand.client(who).get(path, params=query))
    shown: dict[str, Any] = answer
    return shown


async def infer(stand: Stand, times: int = 3) -> None:
    """Of the model of harbour."""
    for _ in range(times):
        await good(stand.client("harbour").post("/v2/models/digits/infer", json=IMAGE))


async def test_history_has_the_figures_of_box_tenant_and_application(stand: Stand) -> None:
    """Requests, outcomes, warm share and quantiles; memory and disk."""
    history = stand.appliance.running().history
    history.sample()
    await infer(stand, 5)
    history.sample()
    names = ["requests", "requests:harbour", "done:harbour/digits", "p99:harbour/digits", "warm:harbour/digits"]
    shown = await ask(stand, series=[*names, "memory:harbour", "disk", "failed:harbour/digits"])
    rows = {row["name"]: row for row in shown["series"]}
    assert list(rows) == [*names, "memory:harbour", "disk", "failed:harbour/digits"]
    assert all(len(row[part]) == shown["count"] for row in rows.values() for part in ("mean", "least", "most"))
    last = {name: [one for one in row["most"] if one is not None][-1] for name, row in rows.items() if any(row["most"])}
    assert last["requests"] == last["requests:harbour"] == last["done:harbour/digits"] > 0
    assert last["p99:harbour/digits"] > 0
    assert 0.5 < last["warm:harbour/digits"] < 1
    assert last["memory:harbour"] > 0
    assert rows["p99:harbour/digits"]["unit"] == "ms"
    assert {one for one in rows["failed:harbour/digits"]["most"] if one is not None} == {0.0}
    assert {"up", "disk", "requests:harbour"} <= set((await ask(stand))["known"])


async def test_history_of_other_tenants_and_the_box_is_hidden_from_a_tenant(stand: Stand) -> None:
    """A name of another tenant answers like an unknown one."""
    history = stand.appliance.running().history
    await infer(stand)
    history.sample()
    known = (await ask(stand, "harbour"))["known"]
    assert "done:harbour/digits" in known
    assert all("harbour" in name or name == "up" for name in known)
    assert (await ask(stand, "museum"))["known"] == ["up"]
    museum = stand.client("museum")
    for real, invented in (("p99:harbour/digits", "p99:harbour/nothing"), ("requests:harbour", "requests:nobody")):
        answers = [await museum.get("/v1/history", params={"series": name}) for name in (real, invented)]
        assert [answer.status_code for answer in answers] == [422, 422]
        assert answers[0].text.replace(real, "NAME") == answers[1].text.replace(invented, "NAME")
    for name in ("requests", "disk", "load:cpu", "celsius"):
        assert (await museum.get("/v1/history", params={"series": name})).status_code == 422
    assert (await ask(stand, "museum", series="requests:museum"))["series"][0]["name"] == "requests:museum"
    assert (await stand.client("device").get("/v1/history")).status_code == 403
    stays = await ask(stand, "museum", "/v1/memory/history")
    assert (stays["stays"], stays["windows"], stays["decisions"]) == ([], [], [])
    assert len((await ask(stand, "harbour", "/v1/memory/history"))["stays"]) == 1


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"series": "p98:harbour/digits"}, "p98:harbour/digits"),
        ({"series": "celsius:thermal/none"}, "celsius:thermal/none"),
        ({"series": "disk:harbour"}, "disk:harbour"),
        ({"series": ""}, "series"),
        ({"series": ["requests"] * 51}, "series"),
        ({"points": 0}, "points"),
        ({"points": 2001}, "points"),
        ({"points": 1, "series": ["requests", "disk"]}, "points"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-01-01T00:00:00"}, "from"),
        ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "from"),
        ({"from": "2999-01-01T00:00:00Z", "to": "2999-01-02T00:00:00Z"}, "from"),
        ({"to": "9999-12-31T23:59:59-23:59"}, "to"),
    ],
)
async def test_history_query_that_is_invalid_is_refused_by_name(
    stand: Stand, query: dict[str, Any], named: str
) -> None:
    """422, with the wrong parameter or series in its detail."""
    answer = await stand.client().get("/v1/history", params=query)
    assert answer.status_code == 422, answer.text
    assert named in answer.json()["detail"]
    if "from" in query or "to" in query:
        again = await stand.client().get("/v1/memory/history", params=query)
        assert again.status_code == 422
        assert named in again.json()["detail"]


async def test_history_query_with_an_end_in_the_future_ends_now(stand: Stand) -> None:
    """The clock of the caller may be ahead; and the ten seconds under way are left out until they have a sample."""
    shown = await ask(stand, series="up", to="9999-12-31T23:59:59Z")
    now = stand.appliance.running().clock.wall_now()
    end = datetime.datetime.fromisoformat(shown["start"]) + datetime.timedelta(seconds=shown["step_s"] * shown["count"])
    assert abs((end - now).total_seconds()) < 60
    before = (await ask(stand, series="up", points=2000))["series"][0]["mean"]
    stand.appliance.running().history.sample()
    after = (await ask(stand, series="up", points=2000))["series"][0]["mean"]
    assert after[-1] == 1.0
    assert before[-1] == 1.0 or len(before) < len(after)


async def test_memory_history_has_stays_with_their_decisions(stand: Stand) -> None:
    """Two models that do not fit together: which left for which, and why, as the decision log has it."""
    admin, harbour, box = stand.client(), stand.client("harbour"), stand.appliance.running()
    profile = (await harbour.get("/v1/models/digits")).json()["variants"][0]["profile"]
    assert (await admin.post("/v1/applications/adding/load")).status_code == 200
    box.memory.resize(max(profile["peak_bytes"], profile["resident_bytes"]))
    assert (await harbour.post("/v1/applications/digits/load")).status_code == 200
    shown = await shown_when(admin, "/v1/memory/history", lambda shown: shown["decisions"])
    left, came = [one for one in shown["stays"] if one["state"] == "resident"]
    assert (left["applications"], left["variant"], left["came"]) == (["default/adding"], "fp32", None)
    assert (left["left_by"], came["applications"], came["until"]) == ("evicted", ["harbour/digits"], None)
    assert left["since"] <= left["until"] <= came["since"]
    assert left["left"] == came["came"] is not None
    decision = (await admin.get(f"/v1/decisions/{came['came']}")).json()
    assert [(one["decision"], one["reason"]) for one in shown["decisions"]] == [(decision["id"], decision["reason"])]
    assert {"default/adding", "harbour/digits"} <= set(decision["concerned"])
    own = await ask(stand, path="/v1/memory/history", application="harbour/digits")
    assert {tuple(one["applications"]) for one in own["stays"]} == {("harbour/digits",)}
    seen = await ask(stand, "harbour", "/v1/memory/history")
    assert "default" not in str(seen)


def as_rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Stays as the rows have them; times as seconds since 1970."""
    start_s = datetime.datetime.fromisoformat(columns["start"]).timestamp()
    stays = columns["stays"]

    def moment(after_ms: int | None) -> float | None:
        return None if after_ms is None else start_s + after_ms / 1000

    return [
        columns["builds"][stays["build"][at]]
        | {key: stays[key][at] for key in ("bytes", "came", "left")}
        | {key: columns["ways"][stays[key][at]] for key in ("came_by", "left_by")}
        | {key: moment(stays[f"{key}_ms"][at]) for key in ("since", "until")}
        for at in range(len(stays["build"]))
    ]


def second(shown: str | None) -> Any:
    """Of a row, to what a millisecond loses."""
    return shown and pytest.approx(datetime.datetime.fromisoformat(shown).timestamp(), abs=0.002)


async def test_memory_history_in_columns_equals_the_rows(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an admin, for a tenant that has a part of it, and for a tenant that has none of it."""
    box = stand.appliance.running()
    given = {"acme/own": ["secret"], "harbour/digits": ["fp32"], "acme/other": ["int8"]}
    residence = box.history.residence
    monkeypatch.setattr(residence, "_variants_of", lambda application, _: given[application])
    residence.happened("variant loaded", {"build": "a@cpu", "bytes": 3, "applications": ["acme/own", "harbour/digits"]})
    residence.happened("variant loaded", {"build": "b@cpu", "bytes": 4, "applications": ["acme/other"]})
    residence.happened("variant unloaded", {"build": "b@cpu"})
    residence.window_opened("harbour/digits")
    residence.window_closed("harbour/digits")
    for who in ("admin", "harbour", "museum"):
        rows = await ask(stand, who, "/v1/memory/history")
        columns = await ask(stand, who, "/v1/memory/history", columns="true", **{"from": rows["start"]})
        told = [one | {key: second(one[key]) for key in ("since", "until")} for one in rows["stays"]]
        assert as_rows(columns) == told
        assert columns["decisions"] == rows["decisions"]
        names = [columns["applications"][one] for one in columns["windows"]["application"]]
        assert names == [one["application"] for one in rows["windows"]]
        assert ("acme" in str(columns)) is (who == "admin")
    assert told == []


async def test_memory_history_names_a_shared_build_as_its_caller_does(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tenants share contents unknowingly, but no names."""
    box = stand.appliance.running()
    (servable,) = box.catalogue.entry("harbour/digits").servables.values()
    given = {"acme/own": ["secret"], "harbour/digits": [servable.name]}
    monkeypatch.setattr(box.history.residence, "_variants_of", lambda application, _: given[application])
    for build in (servable.build_id, "another@cpu"):
        box.history.residence.happened("variant loaded", {"build": build, "bytes": 1, "applications": list(given)})
    harbour, admin = [(await ask(stand, who, "/v1/memory/history"))["stays"][-2:] for who in ("harbour", "admin")]
    assert [(one["variant"], one["applications"]) for one in harbour] == [
        (servable.name, ["harbour/digits"]),
        ("", ["harbour/digits"]),
    ]
    assert [one["variant"] for one in admin] == ["secret", "secret"]


async def test_deleted_tenant_leaves_no_history(stand: Stand) -> None:
    """A new tenant of its name begins without one."""
    admin, history = stand.client(), stand.appliance.running().history
    assert (await admin.post("/v1/tenants", json={"name": "brief"})).status_code == 201
    history.pending.setdefault(10, {}).update({"memory:brief": 5.0, "p99:brief/door": 1.0})
    assert "memory:brief" in history.names()
    assert (await admin.delete("/v1/tenants/brief")).status_code == 200
    assert [name for name in history.names() if "brief" in name] == []
