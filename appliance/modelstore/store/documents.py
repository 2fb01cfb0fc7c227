"""What JSON documents of the database mean, where they are more than the fields of a value: for the tables' columns and
for the quick start.
"""

from typing import Any

from appliance.domain.accuracy import points
from appliance.domain.isolation import REVIEW


def accuracy_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Fields of an `Accuracy`, of which `value` on disk is the points as a share of 1."""
    return {"points": points(document["value"]), **{key: one for key, one in document.items() if key != "value"}}


def profile_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Fields of a `Profile`. Hazards that another review has found, or has not, are forgotten."""
    return document if document.get("review") == REVIEW else {**document, "hazards": None}
