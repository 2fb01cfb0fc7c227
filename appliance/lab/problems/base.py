"""What the kinds share: the shape of a written problem, its checks, and the one-line message that names the key at
fault.

Each kind describes its keys as `Shape`s, calls `shaped`, checks what a shape cannot say (unique names, references) with
`Malformed`, and hands back a `Question`. Unknown keys are allowed everywhere; every number is finite; a number is no
string and no boolean.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

Plan = TypeVar("Plan")
ShapeT = TypeVar("ShapeT", bound="Shape")

BATCH_MAX = 4096
"""No accelerator runs larger batches; it also bounds what a hostile problem can cost."""


class Malformed(Exception):
    """A problem is malformed or impossible by its own terms; `str()` is one line, `clients[3].slo_ms: must be > 0`."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self._given = (key, message)

    def __reduce__(self) -> tuple[type["Malformed"], tuple[str, str]]:
        """So that it crosses from a worker process."""
        return Malformed, self._given


@dataclass(frozen=True, slots=True)
class Question(Generic[Plan]):
    """A problem that was read: `decide` calls the policy and nothing else (it is what `elapsed_ms` measures),
    `answer` writes its plan down.
    """

    decide: Callable[[], Plan]
    answer: Callable[[Plan], dict[str, object]]


class Shape(BaseModel):
    """Base of the models of written problems: strict, finite, frozen; unknown keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Positive = Annotated[float, Field(gt=0, le=1e15)]
NotNegative = Annotated[float, Field(ge=0, le=1e15)]
Share = Annotated[float, Field(ge=0, le=1)]
BatchKey = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}$")]
"""A batch size as JSON has it: the key of an object."""
LatencyByBatch = Annotated[dict[BatchKey, Positive], Field(min_length=1, max_length=256)]


def shaped(shape: type[ShapeT], document: object, key: str = "") -> ShapeT:
    """`document` as a `shape`. Raises: Malformed, naming the first key that does not fit, below `key`."""
    try:
        return shape.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Malformed(_path(key, first["loc"]), _sentence(first)) from None


def refuse_duplicates(names: Iterable[str], key: str, field: str = "name") -> None:
    """Raises: Malformed (`clients[2].name: 'c1' is there twice`) at the first name that came before."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise Malformed(f"{key}[{index}].{field}", f"{name!r} is there twice")
        seen.add(name)


def known(name: str, names: Sequence[str] | Mapping[str, object], key: str) -> str:
    """`name` if it is one of `names`. Raises: Malformed, naming those that are."""
    if name not in names:
        few = ", ".join(list(names)[:20])
        raise Malformed(key, f"{name[:200]!r} is not one of: {few}")
    return name


def _path(key: str, location: Sequence[int | str]) -> str:
    parts = [key]
    for part in location:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        elif part != "[key]":  # pydantic's mark of a bad key: the key itself stands before it
            parts.append(f".{part[:80]}" if any(parts) else part[:80])
    return "".join(parts) or "problem"


_SENTENCES: Mapping[str, str] = {
    "missing": "is missing",
    "greater_than": "must be > {gt:g}",
    "greater_than_equal": "must be >= {ge:g}",
    "less_than": "must be < {lt:g}",
    "less_than_equal": "must be <= {le:g}",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "is not in the form {pattern}",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "list_type": "must be a list",
    "too_short": "must have at least {min_length}",
    "too_long": "must have at most {max_length}",
}


def _sentence(error: Mapping[str, Any]) -> str:
    wording = _SENTENCES.get(error["type"])
    if wording is None:
        return str(error["msg"]).splitlines()[0]
    return wording.format(**error.get("ctx", {}))
