"""What if: the running box simulated as it is and with edits."""

import asyncio
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Path

from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.simulations import Simulation
from appliance.api.v1 import system
from appliance.api.v1.applications import shape_of as application_shape
from appliance.api.v1.deps import Admin, TheBox
from appliance.api.v1.edits import FAMILIES, frames_rps, make
from appliance.api.v1.pipeline_shapes import status_of
from appliance.api.v1.shapes import model_shape
from appliance.clock import NS_PER_MS
from appliance.domain.errors import (
    BadEdit,
    Forbidden,
    ModelUnavailable,
    NothingToSimulate,
    TooManySimulations,
    UnknownSimulation,
)
from appliance.wire.access import TenantShape
from appliance.wire.box import MemoryShape
from appliance.wire.pipelines import PipelineStatusShape
from appliance.wire.scenario import Snapshot, Use, measured, scenario_of
from appliance.wire.scenario_pipelines import left_out as pipelines_left_out
from appliance.wire.shape import Deleted
from appliance.wire.simulations import SimulationOrder, SimulationShape, SimulationsShape

router = APIRouter(prefix="/v1/simulations", tags=["simulations"], route_class=StrictRoute)

SimulationId = Annotated[str, Path(description="Id of the simulation.", examples=["9f8a3c5be01d4f7a"])]
REQUESTS_MAX = 500_000
"""Of one run: about a minute."""


@router.post(
    "",
    status_code=202,
    summary="Simulate the box with edits",
    responses=problems(Forbidden, BadEdit, NothingToSimulate, TooManySimulations),
)
async def begin_simulation(order: SimulationOrder, box: TheBox, principal: Admin) -> SimulationShape:
    """The running box as a scenario (its processors, budget, models with measured run times, tenants, and the mean rate
    of each application since the start; its pipelines with the clients that are there), simulated as it is and with the
    edits made one after the other.

    Both run in virtual time in a process of their own; ask for the simulation until it is `done`. Needs an admin key.
    """
    snapshot, left_out = await _snapshot(box, principal)
    if not snapshot.uses:
        raise NothingToSimulate(name="box")
    left_out += pipelines_left_out(snapshot.pipelines, snapshot.applications())
    today, edited = await asyncio.to_thread(_scenarios, snapshot, order)
    edits = [edit.model_dump(mode="json") for edit in order.edits]
    return shape_of(box.simulations.begin(today, edited, edits=edits, left_out=left_out))


@router.get("", summary="List simulations", responses=problems(Forbidden))
async def list_simulations(box: TheBox, _: Admin) -> SimulationsShape:
    """Simulations since the start of the box, as far as they are kept, newest first, and the policies to choose from.
    Needs an admin key.
    """
    policies = {family: sorted(names) for family, names in FAMILIES.items()}
    return SimulationsShape(items=[summary_of(one) for one in box.simulations.all()], policies=policies)


@router.get("/{simulation}", summary="Show a simulation", responses=problems(Forbidden, UnknownSimulation))
async def show_simulation(simulation: SimulationId, box: TheBox, _: Admin) -> SimulationShape:
    """Progress of a simulation; at its end the figures and reports of the present box and of the edited box. Needs an
    admin key.
    """
    return shape_of(box.simulations.get(simulation))


@router.delete("/{simulation}", summary="End a simulation", responses=problems(Forbidden, UnknownSimulation))
async def delete_simulation(simulation: SimulationId, box: TheBox, _: Admin) -> Deleted:
    """Ends the simulation if it runs, and deletes it. Needs an admin key."""
    await box.simulations.delete(simulation)
    return Deleted(deleted=simulation)


def shape_of(simulation: Simulation) -> SimulationShape:
    """A simulation as it stands."""
    return SimulationShape.model_validate(simulation)


def summary_of(simulation: Simulation) -> SimulationShape:
    """Return a simulation as it stands in a list: without its reports."""
    return shape_of(replace(simulation, reports=None))


def _scenarios(snapshot: Snapshot, order: SimulationOrder) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the box as it is, and with the edits. Any thread. Raises: BadEdit."""
    today = scenario_of(snapshot, rate_rps=0.0, duration_s=order.duration_s)
    _require_few(today, "duration_s")
    edited = deepcopy(today)
    for number, edit in enumerate(order.edits):
        make(edited, edit, f"edits[{number}]", snapshot.names())
        _require_few(edited, f"edits[{number}]")
    return today, edited


def _require_few(scenario: Mapping[str, Any], place: str) -> None:
    """Raises: BadEdit."""
    rates = [entry["poisson_rps"] for entry in scenario["arrivals"]]
    rates += [frames_rps(entry) for entry in scenario.get("pipelines", ())]
    expected = sum(rates) * scenario["duration_s"]
    if expected > REQUESTS_MAX:
        reason = f"{expected:.0f} requests are more than the {REQUESTS_MAX} that one simulation takes"
        raise BadEdit(edit=place, reason=reason)


async def _snapshot(box: RunningBox, principal: Principal) -> tuple[Snapshot, list[str]]:
    """What `/v1` says of the box, and who is left out."""
    shown = await system.memory(box, principal)
    owner = principal.tenant
    uses = await box.turns.collect(owner, _uses(box))
    return (
        Snapshot(
            await system.system(box, principal),
            MemoryShape.model_validate_json(bytes(shown.body)),
            await system.processors(box, principal),
            await box.turns.collect(owner, map(TenantShape.model_validate, box.catalogue.tenants())),
            [use for use in uses if measured(use.model)],
            await box.turns.collect(owner, _pipelines(box)),
        ),
        [f"{use.application.tenant}/{use.application.name}" for use in uses if not measured(use.model)],
    )


def _pipelines(box: RunningBox) -> Iterator[PipelineStatusShape]:
    for live in box.pipelines.all():
        if live.pipeline.id in box.pipelines.live:  # not deleted meanwhile
            yield status_of(box, live)


def _uses(box: RunningBox) -> Iterator[Use]:
    memory = box.memory.snapshot()
    for application in sorted(box.catalogue.applications(), key=attrgetter("tenant", "name")):
        try:
            entry = box.catalogue.entry(application.id)
        except ModelUnavailable:
            continue
        figures = box.telemetry.of_application(application.id)
        yield Use(
            application_shape(box, application),
            model_shape(entry.model, memory, box.catalogue, box.importer),
            sum(one.histograms["total"].count for one in figures.values()),
            {name: [ns / NS_PER_MS for ns in one.runs_ns] for name, one in figures.items() if one.runs_ns},
        )
