"""What a definition of a pipeline means on this box: its graph, and what its networks take at least."""

from collections.abc import Mapping

from appliance.domain.catalogue import TaskKind
from appliance.domain.errors import BadInput, ModelUnavailable, SloTooSmall, UnknownVariant
from appliance.domain.pipeline import Ask, Pipeline
from appliance.domain.pipeline_graph import Graph
from appliance.runtime.catalogue import Catalogue, Entry


def runnable_kinds(catalogue: Catalogue, pipeline: Pipeline) -> dict[str, TaskKind]:
    """As `kinds_of`, of a pipeline that is stored: none where what its applications do has changed so that they do not
    fit any more, which its frames show then.
    """
    kinds = kinds_of(catalogue, pipeline)
    try:
        Graph.of(pipeline.stages, kinds)
    except BadInput:
        return {}
    return kinds


def check(catalogue: Catalogue, pipeline: Pipeline) -> Graph:
    """Whether a pipeline can be run here as it is defined.

    Raises: PipelineCycle, UnknownStage, StageMismatch, TooManyStages, BadName; UnknownVariant; SloTooSmall.
    """
    graph = Graph.of(pipeline.stages, kinds_of(catalogue, pipeline))
    for stage in pipeline.stages:
        if isinstance(stage, Ask) and stage.variant is not None:
            entry = _entry(catalogue, pipeline, stage)
            if entry is not None and all(one.name != stage.variant for one in entry.model.variants):
                raise UnknownVariant(name=stage.variant)
    takes_ms = fastest_ms(catalogue, pipeline)
    path = [one for one in graph.critical_path(takes_ms) if one in takes_ms]
    needs_ms = sum(takes_ms[one] for one in path)
    if needs_ms > pipeline.latency_slo_ms:
        told = tuple(f"{one} {takes_ms[one]:.3g}" for one in path)
        raise SloTooSmall(latency_slo_ms=pipeline.latency_slo_ms, needs_ms=round(needs_ms, 3), path=told)
    return graph


def kinds_of(catalogue: Catalogue, pipeline: Pipeline) -> dict[str, TaskKind]:
    """Application → its task; without those that have gone, or are not the pipeline's to ask any more."""
    asks = [stage for stage in pipeline.stages if isinstance(stage, Ask)]
    entries = {stage.application_id: _entry(catalogue, pipeline, stage) for stage in asks}
    return {id: entry.model.task.kind for id, entry in entries.items() if entry is not None}


def fastest_ms(catalogue: Catalogue, pipeline: Pipeline) -> dict[str, float]:
    """Stage → median of a run of one item, on the fastest of the variants and kinds of processors that may answer, as
    measured at import; without CPU stages, and without those of which nothing is measured.
    """
    found: dict[str, float] = {}
    for stage in pipeline.stages:
        entry = _entry(catalogue, pipeline, stage) if isinstance(stage, Ask) else None
        if isinstance(stage, Ask) and entry is not None:
            times_ms = _times_ms(entry, stage)
            if times_ms:
                found[stage.name] = min(times_ms)
    return found


def longest_ms(graph: Graph, pipeline: Pipeline, takes_ms: Mapping[str, float]) -> float | None:
    """Of the longest path; None: not all networks are measured."""
    if any(isinstance(stage, Ask) and stage.name not in takes_ms for stage in pipeline.stages):
        return None
    return round(sum(takes_ms.get(one, 0.0) for one in graph.critical_path(takes_ms)), 3)


def _times_ms(entry: Entry, stage: Ask) -> list[float]:
    floor = entry.application.accuracy_min if stage.accuracy_min is None else stage.accuracy_min
    if stage.variant is not None:
        servables = [one for one in entry.servables.values() if one.name == stage.variant]
    else:
        servables = [one for one in entry.servables.values() if entry.application.may_choose(one.variant)]
        servables = [one for one in servables if one.accuracy >= floor] or servables
    in_parts = [one.parts.profile for one in servables if one.parts is not None]
    profiles = [*in_parts, *(profile for one in servables for profile in one.variant.profiles)]
    return [one.latencies[0].p50_ms for one in profiles if one.latencies]


def _entry(catalogue: Catalogue, pipeline: Pipeline, stage: Ask) -> Entry | None:
    try:
        return catalogue.entry_for(pipeline.tenant, stage.application_id)
    except ModelUnavailable:
        return None
