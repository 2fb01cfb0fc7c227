"""The pipelines of a box as a scenario writes them, with as many items as their frames have had.

What a filter of regions lets through is what was seen to pass it, so the filter itself is left out; of a condition the
share of items for which it held is written as what its network says.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.domain.accuracy import points
from appliance.wire.pipelines import (
    AnyStage,
    AskOrder,
    CropOrder,
    JoinOrder,
    PickOrder,
    PipelineStatusShape,
    WhenOrder,
)

_OTHERWISE = {"where", "application", "accuracy_min"}
"""Keys of a stage that a scenario has otherwise, or not at all."""


@dataclass(frozen=True, slots=True)
class Applications:
    """The applications of a scenario. `names`: (tenant, application) → its name there; `shared`: that all tenants may
    call.
    """

    names: Mapping[tuple[str, str], str]
    shared: Collection[tuple[str, str]] = ()

    def called(self, tenant: str, application: str) -> str | None:
        """What a tenant calls so: its own, or a shared one, which may be called by its owner's name, too."""
        owner, _, name = application.rpartition("/")
        if owner:
            is_theirs = owner == tenant or (owner, name) in self.shared
            return self.names.get((owner, name)) if is_theirs else None
        shared = (self.names[one] for one in sorted(self.shared) if one[1] == name and one in self.names)
        return self.names.get((tenant, name)) or next(shared, None)


def pipelines_of(
    pipelines: Sequence[PipelineStatusShape], applications: Applications, uptime_s: float
) -> list[dict[str, Any]]:
    """Those that can be written."""
    return [_pipeline(one, applications, uptime_s) for one in pipelines if _is_whole(one, applications)]


def left_out(pipelines: Sequence[PipelineStatusShape], applications: Applications) -> list[str]:
    """`tenant/name` of those that ask an application that is not in the scenario."""
    return [f"{one.tenant}/{one.name}" for one in pipelines if not _is_whole(one, applications)]


def _is_whole(one: PipelineStatusShape, applications: Applications) -> bool:
    return all(_called(one, stage, applications) for stage in one.stages if isinstance(stage, AskOrder))


def items_asked(pipelines: Sequence[PipelineStatusShape], applications: Applications) -> dict[str, int]:
    """Application, as the scenario calls it → items of pipelines that it has answered: they are no calls of its own."""
    found: dict[str, int] = {}
    for one in pipelines:
        for stage in one.stages:
            name = _called(one, stage, applications) if isinstance(stage, AskOrder) else None
            figures = one.figures.get(stage.name)
            if name is not None and figures is not None:
                answered = figures.items - figures.dropped - figures.errors
                found[name] = found.get(name, 0) + max(0, answered)
    return found


def _pipeline(one: PipelineStatusShape, applications: Applications, uptime_s: float) -> dict[str, Any]:
    """Clients that are there stay; frames of others come at their mean rate since the start."""
    joined = sum(client.fps for client in one.clients)
    sent = one.frames.answered + one.frames.failed + one.frames.under_way
    rate = max(0.0, one.rate_fps - joined) if one.clients else sent / max(1.0, uptime_s)
    return {
        "name": f"{one.tenant}/{one.name}",
        "tenant": one.tenant,
        "latency_slo_ms": one.latency_slo_ms,
        "cost_by": str(one.cost_by),
        "weight": one.weight,
        "rate_rps": round(rate, 6),
        "clients": [{"fps": client.fps} for client in one.clients],
        "stages": [_stage(one, stage, applications) for stage in one.stages],
    }


def _stage(one: PipelineStatusShape, stage: AnyStage, applications: Applications) -> dict[str, Any]:
    written = stage.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude=_OTHERWISE)
    if isinstance(stage, AskOrder):
        written["application"] = _called(one, stage, applications)
        if stage.accuracy_min is not None:
            written["accuracy_min"] = points(stage.accuracy_min)
        if seen := _seen(one, stage.name):
            written["seen"] = seen
    elif isinstance(stage, CropOrder):
        written["fan_out"] = _fan_out(one, stage.name)
        if p50_ms := _figure(one, stage.name, "p50_ms"):
            written["takes_ms"] = round(p50_ms / max(1.0, written["fan_out"]), 6)
    elif p50_ms := _figure(one, stage.name, "p50_ms"):
        written["takes_ms"] = round(p50_ms, 6)
    return written


def _fan_out(one: PipelineStatusShape, crop: str) -> float:
    """Items of the stages right behind it for each one that it has cut; 1 where nothing came through yet."""
    own = _figure(one, crop, "items_per_frame")
    behind = [stage for stage in one.stages if crop in stage.after and not isinstance(stage, JoinOrder)]
    passed = max((_figure(one, stage.name, "items_per_frame") * _came(one, stage) for stage in behind), default=0.0)
    return round(passed / own, 6) if own and passed else 1.0


def _came(one: PipelineStatusShape, stage: AnyStage) -> float:
    """Items that came to a stage, for each one that it began with; a pick begins with those, too, that others outdo."""
    figures = one.figures.get(stage.name)
    if figures is None or not figures.items:
        return 1.0
    refused = figures.no_condition - (figures.outdone if isinstance(stage, PickOrder) else 0)
    return 1.0 + max(0, refused) / figures.items


def _figure(one: PipelineStatusShape, stage: str, name: str) -> float:
    figures = one.figures.get(stage)
    return float((getattr(figures, name) if figures is not None else None) or 0.0)


def _seen(one: PipelineStatusShape, stage: str) -> dict[str, float]:
    """Labels of what a condition is about, so often that it holds as often as it did."""
    for other in one.stages:
        if other.when is not None and other.when.stage == stage:
            figures = one.figures.get(other.name)
            held = 1.0
            if figures is not None and figures.items:
                refused = max(0, figures.no_condition - figures.outdone)
                fitting = figures.items + (0 if isinstance(other, PickOrder) else figures.outdone)
                held = fitting / (fitting + refused)
            wanted, others = _labels(other.when)
            return {label: share for label, share in ((wanted, held), (others, 1.0 - held)) if share > 0.0}
    return {}


def _labels(when: WhenOrder) -> tuple[str, str]:
    """One with which a condition holds, and one with which it does not."""
    given, refused = (
        [names] if isinstance(names, str) else list(names or ()) for names in (when.label, when.label_not)
    )
    fitting = [name for name in given if name not in refused]
    return (fitting or ["other"])[0], (refused or ["other"])[0]


def _called(one: PipelineStatusShape, stage: AskOrder, applications: Applications) -> str | None:
    return applications.called(one.tenant, stage.application)
