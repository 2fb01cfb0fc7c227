"""Problem documents, and the errors that they tell.

The server writes `/problems/unknown-model`; the client reads it and raises `UnknownModel` with the same facts.
"""

from collections.abc import Mapping
from typing import Any

from appliance.domain.errors import ERRORS, ApplianceError

PROBLEMS_PATH = "/problems/"
RESERVED = frozenset({"type", "title", "status", "detail", "instance"})
"""Members of RFC 9457 that no fact may take."""


def error_of(problem: Mapping[str, Any]) -> ApplianceError | None:
    """The typed error that a problem document tells; None where its `type` is no class of ours or facts are missing."""
    error = ERRORS.get(str(problem.get("type", "")).rpartition("/")[2])
    if error is None:
        return None
    try:
        return error(**{name: problem[name] for name in error.__dataclass_fields__ if name in problem})
    except TypeError:
        return None
