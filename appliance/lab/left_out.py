"""A box's scenario without the pipelines that the lab cannot take: one that is odd must not end what all others are
simulated for.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from appliance.lab.problems.base import Malformed
from appliance.lab.scenario import parse_scenario


def without_malformed(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """The scenario that can be read, and the names of the pipelines that are not in it. What else is wrong with it is
    left to whoever reads it.
    """
    pipelines = document.get("pipelines", [])
    if not pipelines or _is_fine(document) or not _is_fine(_with_pipelines(document, [])):
        return document, []
    fine = [_is_fine(_with_pipelines(document, [one])) for one in pipelines]
    kept = [one for one, is_fine in zip(pipelines, fine, strict=True) if is_fine]
    names = [str(one.get("name")) for one, is_fine in zip(pipelines, fine, strict=True) if not is_fine]
    return _with_pipelines(document, kept), names


def with_as_many(today: Mapping[str, Any], edited: Mapping[str, Any], left_out: Collection[str]) -> Mapping[str, Any]:
    """The same scenario after edits, without the pipelines that were left out of it.

    Raises: Malformed where one of them is edited.
    """
    before, after = ({one["name"]: one for one in each.get("pipelines", [])} for each in (today, edited))
    for name in left_out:
        if before[name] != after[name]:
            raise Malformed(f"pipeline {name}", "is edited, and cannot be simulated")
    return _with_pipelines(edited, [one for name, one in after.items() if name not in left_out]) if left_out else edited


def _with_pipelines(document: Mapping[str, Any], pipelines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """With these alone, and the devices that ask them or an application."""
    names = [None, *(one.get("name") for one in pipelines)]
    sessions = [one for one in document.get("sessions", []) if one.get("pipeline") in names]
    return {**document, "pipelines": pipelines, **({"sessions": sessions} if "sessions" in document else {})}


def _is_fine(document: Mapping[str, Any]) -> bool:
    try:
        parse_scenario(document)
    except Malformed:
        return False
    return True
