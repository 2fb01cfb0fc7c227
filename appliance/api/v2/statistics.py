"""The statistics extension of `/v2`: counts and durations by model and version since the start."""

from collections.abc import Mapping
from typing import Any

import orjson

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_application
from appliance.api.box import ServingBox
from appliance.api.v2.names import model_and_version, variant_of
from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.catalogue import Application, Variant
from appliance.domain.errors import ModelUnavailable
from appliance.runtime.telemetry import Histogram, Statistics


async def of_model(box: ServingBox, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = model_and_version(parts[:-1])
    application = callable_application(box.catalogue, principal, name)
    rows = _rows(box, application)
    if version is not None:
        variant = variant_of(box, application, version)
        rows = [row for row in rows if row["variant"] == variant.name]
    return {"model_stats": rows}


async def of_all(box: ServingBox, principal: Principal, _: list[str], __: Mapping[str, Any]) -> Any:
    visible = [a for a in box.catalogue.visible(principal.tenant) if principal.may_call(a.name)]
    rows = (row for a in visible for row in _rows(box, a))
    return b'{"model_stats":%b}' % await box.turns.json_list(principal.tenant, map(orjson.dumps, rows))


def _rows(box: ServingBox, application: Application) -> list[dict[str, Any]]:
    """By version: the servable variants, unless somebody unloaded them, and those that have figures.

    A deleted variant has no version.
    """
    try:
        entry = box.catalogue.entry(application.id)
    except ModelUnavailable:
        return []
    figures = box.telemetry.of_application(application.id)
    names = set(figures) | (set(entry.servables) if box.availability.is_open(application) else set())
    to_epoch_ns = int(box.clock.wall_now().timestamp() * NS_PER_S) - box.clock.now_ns()
    return [
        _row(application.name, variant, figures.get(variant.name) or Statistics(), to_epoch_ns)
        for variant in sorted(entry.model.variants, key=lambda variant: variant.number)
        if variant.name in names
    ]


def _row(model: str, variant: Variant, figures: Statistics, to_epoch_ns: int) -> dict[str, Any]:
    done = figures.outcomes.get("done", 0)
    failed = sum(figures.outcomes.values()) - done
    compute = figures.histograms["compute"]
    # A run takes the tensors where they lie and hands its own over: what little that costs is inside the run.
    inside = {"count": compute.count, "ns": 0}
    none = {"count": 0, "ns": 0}
    return {
        "name": model,
        "version": str(variant.number),
        "variant": variant.name,
        "last_inference": (figures.last_ns + to_epoch_ns) // NS_PER_MS if figures.last_ns else 0,
        "inference_count": figures.inferences,
        "execution_count": sum(count for count, _ in figures.runs.values()),
        "inference_stats": {
            "success": _duration(figures.histograms["total"]),
            "fail": {"count": failed, "ns": figures.failed_ns},
            "queue": _duration(figures.histograms["queue"]),
            "compute_input": inside,
            "compute_infer": _duration(compute),
            "compute_output": inside,
            "cache_hit": none,
            "cache_miss": none,
        },
        "batch_stats": [
            {
                "batch_size": items,
                "compute_input": {"count": count, "ns": 0},
                "compute_infer": {"count": count, "ns": took_ns},
                "compute_output": {"count": count, "ns": 0},
            }
            for items, (count, took_ns) in sorted(figures.runs.items())
        ],
    }


def _duration(histogram: Histogram) -> dict[str, int]:
    return {"count": histogram.count, "ns": histogram.sum_ns}
