"""A box and what `appliance scenario` makes of it decide alike: same accuracies in the same unit, same plans.

The box is a real one over a state folder with Edge-MultiAI's Table II; its accuracies lie on disk as shares, as every
version has written them.
"""

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance import log
from appliance.app import Appliance
from appliance.cli.connection import Connection
from appliance.cli.scenario import exported
from appliance.client import Client
from appliance.domain.catalogue import Accuracy, Application, Latency, Precision, Profile
from appliance.lab.composition import compose
from appliance.lab.plan import plan_one
from appliance.lab.scenario import parse_scenario
from appliance.policies.forecast.renewal import Renewal
from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.residency.base import Intent
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.decisions.document import answer_json, problem_json
from appliance.runtime.memory.room import ResidentBuild
from appliance.runtime.residency.arbiter import EvictionArbiter
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.groups import VariantGroups
from appliance.runtime.residency.shares import Shares
from appliance.settings import Settings
from reproduce.edge_multiai.table2 import LOAD_MS_PER_MB, TABLE_II
from tests.api.stand import serving
from tests.fakes.clock import run_virtual
from tests.fakes.sinks import Decisions
from tests.modelstore.boxes import parts, stored_model, stored_variant

BUDGET = 10**9
SECOND = 10**9
LEAST = {"face_recognition": 75.0}
"""Application → the least accuracy that it takes, in points; 0.75 in the API."""

SLO_MS = {"text_classification": 25.0}
"""Kept by int8 alone: its P99 is 10.5 ms, that of fp16 15 ms."""
SPREAD = 1.5
"""P99 of a run by its median."""

every_policy = pytest.mark.parametrize("policy", sorted(EVICTION_POLICIES))


async def _stock(state_dir: Path) -> None:
    """Put Table II into a state folder: what an import would have measured, without the networks."""
    async with parts(state_dir, runs=False) as box:
        for model, rows in TABLE_II.items():
            for name, size_mb, points, run_ms in rows:
                body = f"{model} {name}".encode()
                if name == "fp32":
                    variant = await stored_model(box.store, state_dir, model, body)
                else:
                    variant = await stored_variant(box.store, state_dir, f"default/{model}", name, body)
                size, load_ms = round(size_mb * 1e6), size_mb * LOAD_MS_PER_MB
                profile = Profile("cpu", size, size, load_ms, load_ms, (Latency(1, run_ms, SPREAD * run_ms),))
                accuracy = Accuracy(points, "top-1", "labels", 1000)
                measured = replace(variant, precision=Precision(name), accuracy=accuracy, profile=profile)
                await box.store.models.put_variant(measured)
            await box.store.applications.update(
                Application(
                    f"default/{model}",
                    "default",
                    model,
                    f"default/{model}",
                    latency_slo_ms=SLO_MS.get(model),
                    accuracy_min=LEAST.get(model, 0.0),
                )
            )


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stocked") / "state"
    folder.mkdir()
    asyncio.run(_stock(folder))
    return folder


@pytest.fixture(scope="module")
def box(state_dir: Path, ports: None) -> Iterator[tuple[Catalogue, Connection]]:
    """The catalogue of a running box, and a way to ask it over HTTP. It never loads by itself."""
    log.configure("error", "console")
    settings = Settings(state_dir=state_dir, memory={"budget_bytes": BUDGET}, policies={"eviction": "none"})
    appliance = Appliance(settings)
    with serving(appliance) as url:
        key = (state_dir / "admin.key").read_text().strip()
        yield appliance.running().catalogue, Connection(url, key, None, None, state_dir)


@pytest.fixture(scope="module")
def lab(box: tuple[Catalogue, Connection]) -> Catalogue:
    """The catalogue that the lab makes of the box's own scenario."""
    read = parse_scenario(exported(box[1]))

    async def story() -> Catalogue:
        return compose(read).core.catalogue

    return run_virtual(story)


RESIDENT = {"face_recognition": "fp16", "image_classification": "int8", "speech_recognition": "fp32"}
"""What is in memory: 770.7 of 1000 MB."""
SITUATIONS: tuple[tuple[str | None, Intent], ...] = (
    ("default/sentence_prediction", "serve"),
    ("default/text_classification", "serve"),
    ("default/image_classification", "procure"),
    (None, "rebalance"),
)


def _asked(catalogue: Catalogue, policy: str, request: str | None, intent: Intent) -> tuple[Any, Any]:
    """The problem that the policy is asked over a catalogue, and its answer, as a box records them."""
    groups = VariantGroups(catalogue)
    expectations = Expectations(lambda name: Renewal(), alpha=1.0, delta_ns=SECOND, history_ns=2 * SECOND)
    for number, group in enumerate(groups.all()):  # one after the other, each every five seconds
        for at_s in range(5):
            expectations.arrived(group.name, (5 * at_s + number) * SECOND)
    room = EvictionArbiter(
        groups, expectations, Shares(catalogue, groups, BUDGET), EVICTION_POLICIES[policy](), Decisions(), policy
    )
    servables = {name: catalogue.entry(f"default/{name}").servables[v] for name, v in RESIDENT.items()}
    resident = [ResidentBuild(s.build_id, s.resident_bytes, 0, False) for s in servables.values()]
    problem = room.problem(BUDGET, resident, 30 * SECOND, request, intent)
    return problem_json(problem, policy), answer_json(problem, EVICTION_POLICIES[policy]().plan(problem))


def _planned(problem: Mapping[str, Any]) -> dict[str, object]:
    """What `appliance plan` answers, without the time it took."""
    answer = plan_one(problem)
    del answer["elapsed_ms"]
    return answer


@every_policy
@pytest.mark.parametrize(("request_of", "intent"), SITUATIONS)
def test_exported_scenario_gives_the_residency_plans_of_the_box(
    box: tuple[Catalogue, Connection], lab: Catalogue, policy: str, request_of: str | None, intent: Intent
) -> None:
    """The decision of the box is the plan that `appliance plan` makes of the scenario's problem, number by number."""
    of_box, decided = _asked(box[0], policy, request_of, intent)
    of_lab, _ = _asked(lab, policy, request_of, intent)
    assert of_box == of_lab
    assert decided == _planned(of_lab)


@every_policy
def test_accuracies_reach_the_policy_in_per_cent_unscaled(box: tuple[Catalogue, Connection], policy: str) -> None:
    """Table II goes through disk, catalogue and scenario; nothing multiplies by 100 or divides. Variants that will not
    do are in no group.
    """
    problem, _ = _asked(box[0], policy, None, "rebalance")
    shown = {a["name"]: [v["accuracy"] for v in a["variants"]] for a in problem["applications"]}
    assert shown == {
        f"default/{name}": [
            points for v, _, points, _ in rows if points >= LEAST.get(name, 0) and (name not in SLO_MS or v == "int8")
        ]
        for name, rows in TABLE_II.items()
    }
    assert {a["name"].split("/")[1]: a["accuracy_min"] for a in problem["applications"] if a["accuracy_min"]} == LEAST


@every_policy
def test_residency_plan_does_not_depend_on_the_accuracy_metric(box: tuple[Catalogue, Connection], policy: str) -> None:
    """The same numbers under other names get the same plan."""
    renamed = Catalogue(MostAccurate())
    for tenant in box[0].tenants():
        renamed.put_tenant(tenant)
    for entry in box[0].entries():
        variants = tuple(
            replace(v, accuracy=replace(v.accuracy, metric="cosine", against="fp32", data="share"))
            for v in entry.model.variants
            if v.accuracy
        )
        renamed.put_model(replace(entry.model, variants=variants))
        renamed.put_application(entry.application)
    for request, intent in SITUATIONS:
        assert _asked(box[0], policy, request, intent) == _asked(renamed, policy, request, intent)


def test_accuracies_on_disk_and_in_the_api_are_shares(state_dir: Path, box: tuple[Catalogue, Connection]) -> None:
    """A state folder of an earlier version has the same figures on disk, and callers see them unchanged."""
    database = sqlite3.connect(f"file:{next(state_dir.glob('*.db'))}?mode=ro", uri=True)
    rows = database.execute(
        "SELECT json_extract(accuracy, '$.value'), accuracy FROM variant"
        " WHERE model_id = 'default/face_recognition' ORDER BY 1 DESC"
    ).fetchall()
    least = database.execute("SELECT accuracy_min FROM application WHERE name = 'face_recognition'").fetchall()
    database.close()
    assert [value for value, _ in rows] == [0.902, 0.825, 0.718]
    earlier = {"value": 0.902, "metric": "top-1", "against": "labels", "samples": 1000, "data": ""}
    assert json.loads(rows[0][1]).items() >= earlier.items()
    assert least == [(0.75,)]
    with Client(box[1].url, box[1].key) as client:
        shown = client.model("face_recognition")
        assert [v.accuracy.value for v in shown.variants if v.accuracy] == [0.902, 0.825, 0.718]
        assert client.application("face_recognition").accuracy_min == 0.75
