"""Conditions of a box in trouble, as REST tells them."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.stand import IMAGE, Stand, copied, good, imported, shown_when, stand_on
from tests.toys import tiny_add
from tests.troubles import ASKED, STAGED, Prepared, Staged

pytestmark = pytest.mark.anyio
HEALTH = "/v1/health"


async def conditions(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    """Return what is wrong, by the id of the condition."""
    return {one["id"]: one for one in (await good(client.get(HEALTH)))["conditions"]}


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("staged", STAGED, ids=lambda staged: staged.name)
async def test_health_in_a_staged_trouble_is_not_good_and_names_it(
    staged: Staged, furnished: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The admin is told; the tenant, too, where the trouble is its own or the whole box's. The box stays ready."""
    folder = copied(furnished[0], tmp_path / "state")
    staged.prepare(Prepared(state_dir=folder, scratch=tmp_path, patch=monkeypatch))
    async with stand_on(folder, furnished[1], **staged.settings) as stand:
        await staged.happen(stand.client)

        def is_told(health: Any) -> bool:
            return staged.trouble in {one["id"] for one in health["conditions"]}

        for who in ("admin", "harbour"):
            health = await shown_when(stand.client(who), HEALTH, is_told)
            assert health["status"] != "good"
            told = next(one for one in health["conditions"] if one["id"] == staged.trouble)
            assert told["severity"] != "good"
            assert told["text"].endswith(".")
            assert told["action"]
            assert any(check["status"] != "good" for check in health["checks"])
        assert (await stand.client(None).get("/v2/health/ready")).status_code == 200
        events = stand.appliance.running().telemetry.recent()
        assert staged.trouble in [one.facts["condition"] for one in events if one.event == "condition began"]


async def test_health_of_a_box_in_order_has_no_condition(stand: Stand) -> None:
    """For an admin and for a tenant."""
    for who in ("admin", "harbour"):
        health = await good(stand.client(who).get(HEALTH))
        assert (health["status"], health["conditions"], health["conditions_in_all"]) == ("good", [], 0)


async def test_health_of_another_tenant_shows_nothing_of_a_broken_promise(stand: Stand) -> None:
    """Nor in the checks, nor in the events."""
    harbour, museum = stand.client("harbour"), stand.client("museum")
    await good(harbour.patch("/v1/applications/digits", json={"latency_slo_ms": 0.001}))
    for _ in range(ASKED):
        await harbour.post("/v2/models/digits/infer", json=IMAGE)
    assert (await conditions(harbour))["application-late"]["severity"] == "bad"
    assert (await good(museum.get(HEALTH)))["status"] == "good"
    assert "digits" not in (await museum.get(HEALTH)).text
    events = [one for one in stand.appliance.running().telemetry.recent() if one.event == "condition began"]
    assert {one.tenant for one in events} == {"harbour"}


async def test_health_condition_of_the_box_has_no_figures_for_a_tenant(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is told that the disk is full, not how full; of what an operator alone looks after it hears nothing."""
    full = next(one for one in STAGED if one.name == "disk-full")
    full.prepare(Prepared(state_dir=stand.state_dir, scratch=tmp_path, patch=monkeypatch))
    told = (await conditions(stand.client("harbour")))["disk-full"]
    assert (told["detail"], told["subject"]["tenant"]) == ("", None)
    assert "free" in (await conditions(stand.client()))["disk-full"]["detail"]


async def test_broken_promise_ends_once_requests_keep_it_again(stand: Stand) -> None:
    """Requests in time outweigh the late ones; an event tells the end."""
    harbour = stand.client("harbour")

    async def change_slo(slo_ms: float) -> None:
        await good(harbour.patch("/v1/applications/digits", json={"latency_slo_ms": slo_ms}))

    async def ask() -> None:
        await harbour.post("/v2/models/digits/infer", json=IMAGE)

    await change_slo(0.001)
    for _ in range(ASKED):
        await ask()
    assert "application-late" in await conditions(harbour)
    await change_slo(60_000)  # counted anew
    await ask()
    assert "application-late" not in await conditions(harbour)
    events = [one.event for one in stand.appliance.running().telemetry.recent()]
    assert events.index("condition began") < events.index("condition ended")


async def test_failed_import_is_told_until_the_model_is_imported(stand: Stand, tmp_path: Path) -> None:
    """The same name, with a file that is a network."""
    harbour = stand.client("harbour")
    assert (await imported(harbour, "sums", b"no model"))["state"] == "failed"
    told = (await conditions(harbour))["import-failed"]
    assert told["subject"] == {"kind": "model", "name": "sums", "tenant": "harbour"}
    model = tiny_add(tmp_path / "sums.onnx").read_bytes()
    assert (await imported(harbour, "sums", model, metadata={"precisions": []}))["state"] == "done"
    assert await conditions(harbour) == {}


async def test_session_that_waits_for_room_is_a_condition_of_its_tenant(stand: Stand) -> None:
    """With the reason; it ends with the session."""
    harbour = stand.client("harbour")
    promise, link = {"kind": "latency", "slo_ms": 100, "rate_rps": 10}, {"rtt_ms": 150, "uplink_mbps": 5}
    order = {"application": "digits", "name": "glasses", "fps": 10, "wait": True, "promise": promise, "link": link}
    session = await good(harbour.post("/v1/sessions", json=order))
    assert session["state"] == "waiting"
    told = (await conditions(harbour))["session-waits"]
    assert (told["subject"]["name"], told["detail"]) == (session["id"], session["reason"])
    assert "harbour/glasses at digits" in told["text"]
    assert await conditions(stand.client("museum")) == {}
    await good(harbour.delete(f"/v1/sessions/{session['id']}"))
    assert await conditions(harbour) == {}


async def test_requests_that_callers_got_wrong_are_no_condition(stand: Stand) -> None:
    """Wrong shapes, and timeouts that were too short."""
    harbour = stand.client("harbour")
    wrong = {"inputs": [IMAGE["inputs"][0] | {"shape": [1, 1, 4, 16]}]}
    hasty = IMAGE | {"parameters": {"timeout": 1}}
    for order in (wrong, hasty):
        for _ in range(ASKED):
            assert not (await harbour.post("/v2/models/digits/infer", json=order)).is_success
    assert await conditions(harbour) == {}
