"""Names of errors on the wire: the last segment of a problem's `type`, made from the class and turned back into it.

The server writes `/problems/unknown-model`; the client reads it and raises `UnknownModel` with the same facts.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from appliance.domain.errors import ApplianceError, is_domain_error

PROBLEMS_PATH = "/problems/"
RESERVED = frozenset({"type", "title", "status", "detail", "instance"})
"""Members of RFC 9457 that no fact may take."""


def slug_of(error: type[ApplianceError]) -> str:
    """`UnknownModel` → `unknown-model`. Stable: renaming a class changes the API."""
    return _slug(error.__name__)


@cache
def _slug(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def error_classes() -> Iterator[type[ApplianceError]]:
    """Every class of `domain.errors`, a parent before its children; errors that other parts derive do not travel."""
    waiting: list[type[ApplianceError]] = [ApplianceError]
    while waiting:
        error = waiting.pop()
        if is_domain_error(error):
            yield error
            waiting.extend(error.__subclasses__())


@cache
def _classes() -> Mapping[str, type[ApplianceError]]:
    return {slug_of(error): error for error in error_classes()}


def error_of(problem: Mapping[str, Any]) -> ApplianceError | None:
    """The typed error that a problem document tells; None where its `type` is no class of ours or facts are missing."""
    error = _classes().get(str(problem.get("type", "")).rpartition("/")[2])
    if error is None:
        return None
    fields = error.__dataclass_fields__ if hasattr(error, "__dataclass_fields__") else {}
    try:
        return error(**{name: problem[name] for name in fields if name in problem})
    except TypeError:
        return None
