"""Edits of the running box as a scenario, made in its document one after the other; what cannot be made is named by its
place.
"""

from collections.abc import Collection, Mapping
from math import floor
from typing import Any

from appliance.domain.errors import BadEdit
from appliance.domain.pipeline import CLIENTS_MAX
from appliance.domain.session import FPS_MAX, RATE_MIN
from appliance.policies.adaptation import ADAPTATION_POLICIES
from appliance.policies.allocation import ALLOCATION_POLICIES
from appliance.policies.batching import BATCHING_POLICIES
from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.selection import SELECTION_POLICIES
from appliance.wire.simulations import Edit, MemoryEdit, PipelineEdit, PolicyEdit, RateEdit

FAMILIES: Mapping[str, Collection[str]] = {
    "adaptation": ADAPTATION_POLICIES,
    "allocation": ALLOCATION_POLICIES,
    "batching": BATCHING_POLICIES,
    "dispatch": DISPATCH_POLICIES,
    "eviction": EVICTION_POLICIES,
    "offload": OFFLOAD_POLICIES,
    "selection": SELECTION_POLICIES,
}
_NAMED_MAX = 20
"""Of what could have been meant, in an error."""


def make(scenario: dict[str, Any], edit: Edit, place: str, names: Mapping[tuple[str, str], str]) -> None:
    """Make one; `names`: (tenant, application) → its name in the scenario. Raises: BadEdit."""
    match edit:
        case RateEdit():
            name = names.get((edit.tenant, edit.application))
            if name is None:
                known = [f"{tenant}/{application}" for tenant, application in sorted(names)]
                raise _unknown(f"{edit.tenant}/{edit.application}", known, f"{place}.application")
            entry = next(one for one in scenario["arrivals"] if one["application"] == name)
            entry["poisson_rps"] = entry["poisson_rps"] * edit.times + edit.more_rps
        case PipelineEdit():
            _make_pipeline(scenario, edit, place)
        case MemoryEdit():
            _make_memory(scenario["box"], edit.budget_mb, place)
        case PolicyEdit():
            if edit.family not in FAMILIES:
                reason = f"{edit.family!r} is not one of: {', '.join(FAMILIES)}"
                raise BadEdit(edit=f"{place}.family", reason=reason)
            if edit.name not in FAMILIES[edit.family]:
                reason = f"{edit.name!r} is not one of: {', '.join(sorted(FAMILIES[edit.family]))}"
                raise BadEdit(edit=f"{place}.name", reason=reason)
            scenario["policies"][edit.family] = edit.name


def _make_memory(box: dict[str, Any], budget_mb: float, place: str) -> None:
    """Divide a budget: builds get what processes leave of it, runs get the memory beside the budget."""
    overhead_mb = box.get("overhead_mb", 0.0)
    if budget_mb <= overhead_mb:
        reason = f"guards and other processes take {overhead_mb:.0f} MB: no model would have room"
        raise BadEdit(edit=f"{place}.budget_mb", reason=reason)
    grows_mb = budget_mb - overhead_mb - box["memory_mb"]
    box["memory_mb"] += grows_mb
    box["spare_mb"] = max(0.0, box.get("spare_mb", 0.0) - grows_mb)


def frames_rps(pipeline: Mapping[str, Any]) -> float:
    """Frames a second that a pipeline of a scenario is sent, were all of its clients let in."""
    joined = (client.get("count", 1) * client["fps"] for client in pipeline["clients"])
    return float(pipeline["rate_rps"] + sum(joined))


def _make_pipeline(scenario: dict[str, Any], edit: PipelineEdit, place: str) -> None:
    name = f"{edit.tenant}/{edit.pipeline}"
    pipelines = {one["name"]: one for one in scenario.get("pipelines", ())}
    if name not in pipelines:
        raise _unknown(name, sorted(pipelines), f"{place}.pipeline")
    entry = pipelines[name]
    clients = entry["clients"]
    if edit.more_clients:
        fps = clients[0]["fps"] if edit.client_fps is None and clients else edit.client_fps
        if fps is None:
            reason = "is missing: the pipeline has no client whose rate it could be"
            raise BadEdit(edit=f"{place}.client_fps", reason=reason)
        more = [{"fps": fps, "count": edit.more_clients}]
    else:
        more = []
    entry["rate_rps"] *= edit.times
    entry["clients"] = [*(one for client in clients for one in _times(client, edit.times)), *more]
    count = sum(client.get("count", 1) for client in entry["clients"])
    if count > CLIENTS_MAX:
        reason = f"{count} clients are more than the {CLIENTS_MAX} that a pipeline may have"
        raise BadEdit(edit=place, reason=reason)
    changed = {"latency_slo_ms": edit.latency_slo_ms, "cost_by": edit.cost_by and str(edit.cost_by)}
    entry.update((key, value) for key, value in changed.items() if value is not None)


def _times(client: Mapping[str, Any], times: float) -> list[dict[str, Any]]:
    """So many of them: whole ones, and one with what is left of the frames."""
    count = client.get("count", 1) * times
    whole = floor(count + 1e-9)
    rest_fps = min(FPS_MAX, (count - whole) * client["fps"])
    found = [{**client, "count": whole}] if whole else []
    return [*found, *([{**client, "count": 1, "fps": rest_fps}] if rest_fps >= RATE_MIN else [])]


def _unknown(name: str, known: list[str], place: str) -> BadEdit:
    reason = f"{name} cannot be simulated; these can: {', '.join(known[:_NAMED_MAX])}"
    return BadEdit(edit=place, reason=reason)
