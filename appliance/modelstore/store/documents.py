"""What JSON documents of the database mean, where they are more than the fields of a value: for the tables' columns and
for the quick start.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from appliance.domain.accuracy import points, share
from appliance.domain.catalogue import Evidence
from appliance.domain.isolation import REVIEW
from appliance.domain.pipeline import Ask, Crop, Join, Pick, Stage
from appliance.domain.trial import Verdict

_SORTS: Mapping[type[Stage], str] = {Ask: "ask", Crop: "crop", Pick: "pick", Join: "join"}
_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {sort: TypeAdapter(kind) for kind, sort in _SORTS.items()}


def accuracy_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Fields of an `Accuracy`, of which `value` on disk is the points as a share of 1.

    A document without evidence is an earlier version's, which told noise in words. One of a dismissed variant with the
    figure of the noise is an earlier version's, too: what the trial found counts.
    """
    told = document.get("sample_set", ""), document.get("data", "")
    is_noise = any("synthetic" in text for text in told)
    known = {"evidence": Evidence.NOISE if is_noise else Evidence.SAMPLES, **document}
    value, trial = known.pop("value"), known.get("trial") or {}
    if known["evidence"] == Evidence.NOISE and trial.get("verdict") == Verdict.DISMISSED:
        value = trial["total"] / trial["samples"]
        known |= {
            "evidence": Evidence.DISAGREED,
            "samples": trial["samples"],
            "data": "",
            "scores": (),
            "sample_set": "",
        }
    return {"points": points(value), **known}


def profile_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Fields of a `Profile`. Hazards that another review has found, or has not, are forgotten."""
    return document if document.get("review") == REVIEW else {**document, "hazards": None}


def stage_document(stage: Stage) -> dict[str, Any]:
    """A pipeline's stage with its sort in `do`, and its accuracy as a share of 1."""
    document: dict[str, Any] = _ADAPTERS[_SORTS[type(stage)]].dump_python(stage, mode="json")
    if document.get("accuracy_min") is not None:
        document["accuracy_min"] = share(document["accuracy_min"])
    return {"do": _SORTS[type(stage)], **document}


def stage_of(document: Mapping[str, Any]) -> Stage:
    """The stage back; what a newer version has written beside is passed over."""
    fields = {key: value for key, value in document.items() if key != "do"}
    if fields.get("accuracy_min") is not None:
        fields["accuracy_min"] = points(fields["accuracy_min"])
    stage: Stage = _ADAPTERS[document["do"]].validate_python(fields)
    return stage
