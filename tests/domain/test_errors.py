"""Every error says something a person can read and carries its facts."""

import dataclasses
import inspect
import types
import typing
from typing import Any

import pytest

from appliance.domain import errors
from appliance.domain.errors import ApplianceError, Blocker, FrameDropped, QueueFull
from appliance.domain.errors.sessions import DROPPED
from appliance.domain.session import DropCause

CLASSES: list[type[ApplianceError]] = sorted(
    (c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, ApplianceError)),
    key=lambda c: c.__name__,
)
SAMPLES: dict[object, Any] = {str: "sample", int: 42, float: 1.5, bool: True}
every_error = pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)


def fact(kind: Any) -> Any:
    """A value of a field's type: of a union the first member's, of a collection an empty one."""
    origin = typing.get_origin(kind)
    if origin is None:
        return SAMPLES[kind]
    return fact(typing.get_args(kind)[0]) if origin in (types.UnionType, typing.Union) else origin()


def sample(kind: type[ApplianceError]) -> ApplianceError:
    """An error with a value in every field."""
    return kind(**{f.name: fact(f.type) for f in dataclasses.fields(kind)})


def test_errors_module_docstring_names_every_class() -> None:
    text = inspect.getdoc(errors) or ""
    assert [c.__name__ for c in CLASSES if c.__name__ not in text] == []


@every_error
def test_error_message_is_a_sentence_with_required_facts_only(kind: type[ApplianceError]) -> None:
    """The text is not empty even with nothing but the required facts, and is what `str` gives."""
    error = sample(kind)
    assert str(error) == error.message()
    required = {f.name: fact(f.type) for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING}
    assert len(str(kind(**required))) > 10


@every_error
def test_error_message_differs_from_that_of_the_root_error(kind: type[ApplianceError]) -> None:
    if kind is not ApplianceError:
        assert sample(kind).message() != ApplianceError().message()


@every_error
def test_error_facts_are_exactly_the_dataclass_fields(kind: type[ApplianceError]) -> None:
    assert sample(kind).facts() == {f.name: fact(f.type) for f in dataclasses.fields(kind)}


@every_error
def test_error_is_hashable(kind: type[ApplianceError]) -> None:
    """Logging and task groups put errors into sets."""
    error = sample(kind)
    assert len({error, error}) == 1


def test_retry_after_is_present_only_on_limits_and_unavailability() -> None:
    with_retry = {c for c in CLASSES if "retry_after_s" in c.__dataclass_fields__}
    assert with_retry == {c for c in CLASSES if issubclass(c, errors.LimitReached | errors.Unavailable)}


def test_dropped_frame_error_has_words_for_every_cause() -> None:
    assert DROPPED.keys() == set(DropCause)
    assert str(FrameDropped(frame=7, cause=DropCause.LATE)).endswith("late (its deadline came while it waited)")
    assert str(FrameDropped(frame=7, cause="other")) == "frame 7 was dropped: other"


@pytest.mark.parametrize(("waiting", "words"), [(256, "256 requests"), (None, "256 requests"), (3, "3 requests")])
def test_full_queue_error_states_number_of_waiting_requests(waiting: int | None, words: str) -> None:
    """Fewer than one tenant may have waiting, where other tenants' requests leave no more places."""
    error = QueueFull(application_id="harbour/door", queue_len_max=256, waiting=waiting)
    assert str(error).startswith(f"{words} of 'harbour/door' are waiting")


def test_refusal_for_memory_as_seen_by_tenant_names_own_applications_only() -> None:
    """What holds the memory stays in it."""
    blockers = [Blocker(application=name, mb=1.0, why="pinned", until_s=None) for name in ("t/own", "u/other", None)]
    refused = errors.OutOfMemory(build_id="b", need_bytes=2, budget_bytes=3, blockers=blockers, retry_after_s=1.0)
    seen = refused.as_seen_by("t")
    assert [(one["application"], one["mb"]) for one in seen.blockers] == [("t/own", 1.0), (None, 1.0), (None, 1.0)]
    assert (type(seen), seen.need_bytes, seen.retry_after_s) == (errors.OutOfMemory, 2, 1.0)
