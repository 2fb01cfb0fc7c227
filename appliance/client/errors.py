"""Answers that are errors, as the classes they were on the box.

Those are imported with the first one: half a megabyte, which a device that is refused nothing does without.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx


class UnexpectedAnswer(Exception):
    """An error that is none of the box's own: another program answers, or the box is newer than this client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


class NoAnswer(TimeoutError):
    """Something takes connections at the box's address, and did not answer in time; what was asked may have been done
    or not.
    """

    def __init__(self, url: str, waited_s: float) -> None:
        super().__init__(f"the box at {url} did not answer within {waited_s:g} s")


TRIES = 2
"""Of what may be asked twice with the same outcome: what reads, and the end of a session."""


def raise_for(response: "httpx.Response") -> None:
    """Nothing for a success; else the typed error. The body must have been read.

    Raises: the `ApplianceError` that the problem document tells, else UnexpectedAnswer.
    """
    if response.is_success:
        return
    raise failure_of(problem_in(response.content), response.status_code, response.text[:200])


def failure_of(problem: Mapping[str, Any], status: int, text: str = "") -> Exception:
    """The `ApplianceError` that a problem document tells, else an UnexpectedAnswer; `text` where it tells nothing."""
    from appliance.wire.problem import error_of

    return error_of(problem) or UnexpectedAnswer(status, str(problem.get("detail") or text or "no body"))


def problem_in(content: bytes) -> dict[str, Any]:
    """The problem document of a body; empty where it is none."""
    try:
        problem = json.loads(content)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}
