"""Answers that are errors, as the classes they were on the box."""

import json
from typing import Any

import httpx

from appliance.domain.errors import ApplianceError
from appliance.wire.problem import error_of


class UnexpectedAnswer(Exception):
    """An error that is none of the box's own: another program answers, or the box is newer than this client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


def raise_for(response: httpx.Response) -> None:
    """Nothing for a success; else the typed error. The body must have been read.

    Raises: the `ApplianceError` that the problem document tells, else UnexpectedAnswer.
    """
    if response.is_success:
        return
    problem = _problem(response)
    error: ApplianceError | None = error_of(problem)
    if error is not None:
        raise error
    raise UnexpectedAnswer(response.status_code, str(problem.get("detail") or response.text[:200] or "no body"))


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        problem = json.loads(response.content)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}
