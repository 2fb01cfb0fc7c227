"""A box's scenario without the pipelines that the lab cannot take: one that is odd must not end what all others are
simulated for.
"""

from collections.abc import Mapping
from typing import Any

from appliance.lab.problems.base import Malformed
from appliance.lab.scenario import parse_scenario


def without_malformed(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """The scenario that can be read, and the names of the pipelines that are not in it. What else is wrong with it is
    left to whoever reads it.
    """
    pipelines = document.get("pipelines", [])
    if not pipelines or _is_fine(document) or not _is_fine({**document, "pipelines": []}):
        return document, []
    fine = [_is_fine({**document, "pipelines": [one]}) for one in pipelines]
    kept = [one for one, is_fine in zip(pipelines, fine, strict=True) if is_fine]
    names = [str(one.get("name")) for one, is_fine in zip(pipelines, fine, strict=True) if not is_fine]
    return {**document, "pipelines": kept}, names


def _is_fine(document: Mapping[str, Any]) -> bool:
    try:
        parse_scenario(document)
    except Malformed:
        return False
    return True
