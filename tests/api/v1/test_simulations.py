"""The running box simulated as it is and with edits, in a child of its own."""

from typing import Any

import httpx
import pytest

from appliance.api.simulations import LIMITS, WAITING_MAX, Simulations
from appliance.api.v1 import simulations
from appliance.api.v1.edits import frames_rps, make
from appliance.clock import SystemClock
from appliance.confinement.limits import ChildLimits
from appliance.domain.errors import BadEdit
from appliance.wire.simulations import MemoryEdit, PipelineEdit
from tests.api.stand import Stand, good, refusal, shown_when

pytestmark = pytest.mark.anyio
RATE = {"kind": "rate", "application": "digits", "tenant": "harbour", "more_rps": 20.0}
PIPELINE = {"kind": "pipeline", "pipeline": "one", "tenant": "harbour"}
HUNDRED = PIPELINE | {"more_clients": 100, "client_fps": 0.1}


async def ended(client: httpx.AsyncClient, id: str) -> Any:
    """The simulation, which went well."""
    ends = ("done", "failed")
    shown = await shown_when(client, f"/v1/simulations/{id}", lambda shown: shown["state"] in ends)
    assert (shown["state"], shown["error"]) == ("done", "")
    return shown


async def simulated(client: httpx.AsyncClient, *edits: dict[str, Any]) -> Any:
    order = {"edits": edits, "duration_s": 20}
    return await ended(client, (await good(client.post("/v1/simulations", json=order)))["id"])


@pytest.fixture
async def pipeline(stand: Stand) -> None:
    """harbour has a pipeline `one`."""
    order = {"name": "one", "latency_slo_ms": 500, "stages": [{"name": "what", "application": "digits"}]}
    await good(stand.client("harbour").post("/v1/pipelines", json=order))


@pytest.mark.nightly("another child")
async def test_simulation_with_edits_differs_by_the_edits_only(stand: Stand) -> None:
    """Both runs have the box's own applications."""
    admin = stand.client()
    edits = [RATE, {"kind": "memory", "budget_mb": 64.0}, {"kind": "policy", "family": "eviction", "name": "lru"}]
    answer = await good(admin.post("/v1/simulations", json={"edits": edits, "duration_s": 60}))
    begun = answer
    assert (begun["today"], begun["edits"][1]) == (None, edits[1])
    shown = await ended(admin, begun["id"])
    assert shown["percent"] == 100.0
    today, edited = shown["today"], shown["edited"]
    assert set(edited["applications"]) == {"digits", "adding"}
    assert edited["applications"]["digits"]["requests"] > 1000 > today["applications"]["digits"]["requests"]
    assert edited["applications"]["digits"]["accuracy_mean"] > 50
    assert edited["memory_peak_mb"] <= 64.0
    listed = (await admin.get("/v1/simulations")).json()
    assert [one["id"] for one in listed["items"]] == [begun["id"]]
    assert listed["items"][0]["reports"] is None, "reports are large"
    assert "lru" in listed["policies"]["eviction"]
    assert (await admin.delete(f"/v1/simulations/{begun['id']}")).json() == {"deleted": begun["id"]}
    assert (await admin.get(f"/v1/simulations/{begun['id']}")).status_code == 404
    audited = (await admin.get("/v1/audit", params={"limit": 2})).json()["items"]
    actions = ["End a simulation", "Simulate the box with edits"]
    assert [(one["action"], one["tenant"]) for one in audited] == [(action, "") for action in actions]


@pytest.mark.usefixtures("pipeline")
async def test_simulation_edit_of_a_pipeline_holds_in_the_edited_run_only(stand: Stand) -> None:
    """Twice the clients, two more, another SLO and another measure of cost."""
    await good(stand.client("harbour").post("/v1/pipelines/one/clients", json={"fps": 5}))
    more = PIPELINE | {"times": 2, "more_clients": 2, "latency_slo_ms": 600, "cost_by": "price"}
    shown = await simulated(stand.client(), more)
    assert shown["edits"][0]["cost_by"] == "price"
    today, edited = (shown[name]["pipelines"]["harbour/one"] for name in ("today", "edited"))
    assert 95 <= today["frames"] <= 105
    assert 380 <= edited["frames"] <= 420
    assert set(today) == {"frames", "finished_in_time", "cost", "clients"}
    assert 0 < today["finished_in_time"] <= today["frames"]
    assert (today["clients"]["joined"], edited["clients"]["joined"]) == (1, 4)
    assert today["cost"] > 0
    assert edited["cost"] is None, "this box knows no prices"


async def test_simulation_reports_memory_requests_and_decisions_over_time(stand: Stand) -> None:
    """At each moment the parts of the memory are the budget; each request is counted once."""
    admin = stand.client()
    budget_mb = (await good(admin.get("/v1/memory")))["budget_bytes"] / 1e6
    shown = await simulated(admin, RATE, {"kind": "memory", "budget_mb": 64.0})
    for name, size_mb in (("today", budget_mb), ("edited", 64.0)):
        report, figures = shown["reports"][name], shown[name]
        moments = len(report["at_s"])
        assert 0 < report["at_s"][0] < report["at_s"][-1] < 20
        parts = [*report["models_mb"].values(), report["processes_mb"], report["runs_mb"], report["free_mb"]]
        assert all(len(part) == moments for part in parts)
        assert [sum(part[at] for part in parts) for at in range(moments)] == pytest.approx([size_mb] * moments, abs=0.1)
        counted = {kind: sum(row) for kind, row in report["requests"].items()}
        assert counted == {kind: figures[kind] for kind in ("warm", "cold", "failed", "dropped")}
        assert report["decisions_in_all"] >= len(report["decisions"])
        assert all(one["reason"] and one["at_s"] >= 0 for one in report["decisions"])


@pytest.mark.parametrize(
    ("times", "clients", "expected"),
    [
        (2.5, [{"fps": 10.0}], [(2, 10.0), (1, 5.0)]),
        (0.5, [{"fps": 10.0}, {"fps": 4.0}], [(1, 5.0), (1, 2.0)]),
        (1.0, [{"fps": 10.0, "count": 3}], [(3, 10.0)]),
        (0.0, [{"fps": 10.0}], []),
    ],
    ids=str,
)
def test_pipeline_edit_multiplies_the_frames_of_its_clients(
    times: float, clients: list[dict[str, Any]], expected: list[Any]
) -> None:
    """Whole clients as they are, and one with what is left: all of their frames together are as many times as many."""
    entry: dict[str, Any] = {"name": "harbour/one", "rate_rps": 3.0, "clients": clients}
    before = frames_rps(entry)
    edit = PipelineEdit(kind="pipeline", pipeline="one", tenant="harbour", times=times)
    make({"pipelines": [entry]}, edit, "edits[0]", {})
    assert [(one["count"], one["fps"]) for one in entry["clients"]] == expected
    assert frames_rps(entry) == pytest.approx(times * before)


def test_memory_edit_leaves_models_what_processes_beside_them_do_not_take() -> None:
    """Of 128 MB guards take 68 and the machine has 10 more for runs: of 100 MB models get 32, and runs find 38."""
    scenario: dict[str, Any] = {"box": {"memory_mb": 60.0, "overhead_mb": 68.0, "spare_mb": 10.0}}
    make(scenario, MemoryEdit(kind="memory", budget_mb=100), "edits[0]", {})
    assert scenario["box"] == {"memory_mb": 32, "overhead_mb": 68, "spare_mb": 38}
    make(scenario, MemoryEdit(kind="memory", budget_mb=200), "edits[1]", {})
    assert scenario["box"] == {"memory_mb": 132, "overhead_mb": 68, "spare_mb": 0}
    with pytest.raises(BadEdit, match="take 68 MB") as refused:
        make(scenario, MemoryEdit(kind="memory", budget_mb=68), "edits[2]", {})
    assert refused.value.edit == "edits[2].budget_mb"


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize(
    ("first", "edit", "place"),
    [
        (RATE, {"kind": "rate", "application": "nobody"}, "edits[1].application"),
        (RATE, {"kind": "policy", "family": "weather", "name": "lru"}, "edits[1].family"),
        (RATE, {"kind": "policy", "family": "eviction", "name": "fifo"}, "edits[1].name"),
        (RATE, {"kind": "policy", "family": "allocation", "name": "nexus-like"}, "edits[1].name"),
        (RATE, RATE | {"more_rps": 9000.0}, "edits[1]"),
        (RATE, PIPELINE | {"pipeline": "nobody"}, "edits[1].pipeline"),
        (RATE, PIPELINE | {"tenant": "default"}, "edits[1].pipeline"),
        (RATE, PIPELINE | {"more_clients": 2}, "edits[1].client_fps"),
        (HUNDRED, PIPELINE | {"more_clients": 200, "client_fps": 0.1}, "edits[1]"),
        (RATE, PIPELINE | {"more_clients": 100, "client_fps": 30}, "edits[1]"),
    ],
)
async def test_simulation_edit_that_is_impossible_is_named(
    stand: Stand, first: dict[str, Any], edit: dict[str, Any], place: str
) -> None:
    """Also by how many clients and frames all edits before it have made."""
    answer = await stand.client().post("/v1/simulations", json={"edits": [first, edit], "duration_s": 300})
    assert refusal(answer) == (422, "bad-edit"), answer.text
    assert answer.json()["edit"] == place
    assert answer.json()["detail"].startswith(place)


async def test_simulation_of_a_box_too_busy_is_refused_by_its_duration(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unedited box is simulated, too; the duration is named, not the edit."""
    monkeypatch.setattr(simulations, "REQUESTS_MAX", -1)
    answer = await stand.client().post("/v1/simulations", json={"edits": [RATE], "duration_s": 300})
    assert (answer.status_code, answer.json()["edit"]) == (422, "duration_s")


async def test_simulation_edit_of_an_unknown_form_is_refused_by_place(stand: Stand) -> None:
    """By the check that every body gets; and no simulation begins."""
    admin = stand.client()
    for edit in ({"kind": "weather"}, {"kind": "memory", "budget_mb": -1}, RATE | {"colour": "red"}):
        answer = await admin.post("/v1/simulations", json={"edits": [edit]})
        assert answer.status_code == 422
        assert "edits.0" in answer.text
    assert (await admin.post("/v1/simulations", json={"edits": []})).status_code == 422
    assert (await admin.get("/v1/simulations")).json()["items"] == []


async def test_simulations_wait_for_each_other_within_a_bound(stand: Stand) -> None:
    admin = stand.client()
    order = {"edits": [RATE], "duration_s": 20_000}
    begun = [await admin.post("/v1/simulations", json=order) for _ in range(WAITING_MAX + 1)]
    assert [answer.status_code for answer in begun] == [202] * WAITING_MAX + [429]
    assert begun[-1].json()["type"] == "/problems/too-many-simulations"
    last = begun[-2].json()["id"]
    assert (await admin.get(f"/v1/simulations/{last}")).json()["state"] == "queued"
    for answer in begun[:-1]:
        assert (await admin.delete(f"/v1/simulations/{answer.json()['id']}")).status_code == 200


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("limits", "why"), [({"wall_s": 0.01}, "took longer than"), ({"cpu_s": 0}, "its process ended")]
)
async def test_simulation_child_above_its_limits_is_ended(limits: dict[str, Any], why: str) -> None:
    given = {name: getattr(LIMITS, name) for name in LIMITS.__dataclass_fields__} | limits
    own = Simulations(SystemClock(), limits=ChildLimits(**given))
    document = {"duration_s": 1.0}
    made = own.begin(document, document, edits=[], left_out=[])
    assert made.task is not None
    await made.task
    assert made.state == "failed"
    assert why in made.error


@pytest.mark.usefixtures("processes")
async def test_simulation_scenario_that_is_wrong_fails_with_the_reason() -> None:
    """As the lab says it."""
    own = Simulations(SystemClock())
    made = own.begin({"duration_s": 1.0}, {"duration_s": 1.0}, edits=[], left_out=[])
    assert made.task is not None
    await made.task
    assert (made.state, made.error) == ("failed", "box: is missing")
    await own.close()
