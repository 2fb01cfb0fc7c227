"""Errors as HTTP answers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.api.http.documented import EXAMPLES
from appliance.api.http.problems import all_problems, headers_of, problem_response, status_of
from appliance.domain import errors as e
from appliance.domain.errors.memory import Blocker
from appliance.wire.problem import RESERVED, error_of

CLASSES = sorted(e.ERRORS.values(), key=lambda error: error.__name__)
PROBLEMS = Path(__file__).with_name("problems.json")
"""Slug to status and title, as callers know them; changed on purpose only."""
FACTS: dict[Any, Any] = {
    str: "because",
    int: 7,
    float: 2.5,
    bool: True,
    str | None: "stages[1].after",
    int | None: 9,
    float | None: None,
    list[str]: ["int8"],
    tuple[str, ...]: ["find 24", "read 10"],
    tuple[Mapping[str, object], ...]: [{"kind": "latency", "slo_ms": 180.0, "rate_rps": 15.0}],
    list[Blocker]: [{"application": None, "mb": 1.5, "why": "pinned", "until_s": None}],
}
"""Of errors, by their type."""


def made(error: type[e.ApplianceError]) -> e.ApplianceError:
    fields = getattr(error, "__dataclass_fields__", {})
    return error(**{name: FACTS[field.type] for name, field in fields.items()})


@pytest.mark.parametrize("error", CLASSES)
def test_error_class_gives_a_whole_problem_document(error: type[e.ApplianceError]) -> None:
    """The standard members, its facts beside them, and the status of its class."""
    exc = made(error)
    status, headers, body = problem_response(exc, "/v1/models/door")
    document = json.loads(body)
    assert document["type"] == f"/problems/{error.slug}"
    assert document["status"] == status == status_of(exc) == error.status
    assert 400 <= status <= 599
    assert document["title"]
    assert document["detail"] == str(exc) != ""
    assert document["instance"] == "/v1/models/door"
    assert {name: document[name] for name in exc.facts()} == exc.facts()
    assert headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("error", CLASSES)
def test_error_class_comes_back_from_its_problem_document(error: type[e.ApplianceError]) -> None:
    """What the box writes, the client reads as the same class with the same facts."""
    exc = made(error)
    back = error_of(json.loads(problem_response(exc)[2]))
    assert type(back) is error
    assert back.facts() == exc.facts()


def test_problem_types_are_unique() -> None:
    """The types of HTTP itself included."""
    slugs = [error.slug for error in CLASSES]
    assert len(set(slugs)) == len(slugs)
    assert set(slugs) < set(all_problems())


def test_problem_types_statuses_and_titles_are_those_that_callers_know() -> None:
    known = {slug: (status, title) for slug, (status, title) in json.loads(PROBLEMS.read_text("utf-8")).items()}
    assert all_problems() == known


def test_facts_of_errors_have_no_name_of_a_standard_member() -> None:
    """A fact called `status` would be lost in the document."""
    assert not [name for error in CLASSES for name in getattr(error, "__dataclass_fields__", {}) if name in RESERVED]


def test_error_class_of_another_package_is_told_as_its_parent() -> None:
    """With a type that the box explains, and that the client raises again."""

    class UnknownBridge(e.NotFound, what="bridge"): ...

    status, _, body = problem_response(UnknownBridge(name="x"))
    document = json.loads(body)
    assert (status, document["type"], document["detail"]) == (404, "/problems/not-found", "there is no bridge 'x'")
    assert type(error_of(document)) is e.NotFound


@pytest.mark.parametrize("tenant", [None, "harbour"])
def test_out_of_memory_that_can_never_fit_is_507(tenant: str | None) -> None:
    """The type stays, so that one handler serves both; there is nothing to wait for, and the client raises the same
    class with the same facts.
    """
    facts: Any = {"build_id": "b", "need_bytes": 9 * 10**6, "budget_bytes": 5 * 10**6, "variant": "int8"}
    facts["can_fit"] = False
    exc: e.OutOfMemory = e.OutOfMemory(**facts, retry_after_s=None)
    if tenant is not None:
        exc = e.CeilingReached(**facts, retry_after_s=None, tenant=tenant, held_bytes=0, ceiling_bytes=4 * 10**6)
    status, headers, body = problem_response(exc)
    assert (status, status_of(exc), json.loads(body)["status"]) == (507, 507, 507)
    assert json.loads(body)["type"] == f"/problems/{exc.slug}"
    assert "Retry-After" not in headers
    back = error_of(json.loads(body))
    assert type(back) is type(exc)
    assert back is not None
    assert back.facts() == exc.facts()


def test_frame_beyond_the_promised_rate_is_429_and_another_dropped_frame_504() -> None:
    """The type is the same: one handler serves both."""
    told = [json.loads(problem_response(e.FrameDropped(frame=3, cause=cause))[2]) for cause in ("over-rate", "late")]
    assert [(one["status"], one["title"]) for one in told] == [
        (429, "More frames than were promised"),
        (504, "The frame was not run"),
    ]
    assert {one["type"] for one in told} == {"/problems/frame-dropped"}


def test_unknown_exception_is_500_without_its_text() -> None:
    status, _, body = problem_response(ValueError("the secret is 42"))
    assert status == status_of(ValueError()) == 500
    assert b"secret" not in body
    assert json.loads(body)["type"] == "/problems/internal-error"


def test_problems_have_retry_after_and_www_authenticate_headers() -> None:
    """`Retry-After` in whole seconds and never 0; a missing key says what is wanted."""
    assert headers_of(e.QuotaExceeded(tenant="t", quota="q", limit=1, retry_after_s=0.01)) == {"Retry-After": "1"}
    assert headers_of(e.OutOfMemory(build_id="b", need_bytes=1, budget_bytes=1, retry_after_s=2.1)) == {
        "Retry-After": "3"
    }
    never = e.QuotaExceeded(tenant="t", quota="q", limit=1, retry_after_s=float("inf"))
    assert headers_of(never) == {"Retry-After": "86400"}
    assert headers_of(e.MissingKey()) == {"WWW-Authenticate": "Bearer"}
    assert headers_of(e.UnknownModel(name="x")) == {}


def test_documentation_has_one_example_of_an_error_class() -> None:
    assert len({type(example) for example in EXAMPLES}) == len(EXAMPLES)
