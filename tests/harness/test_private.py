"""Tests use the product as other code does: private names of it, and of libraries, only where a row allows it."""

import ast
from collections.abc import Iterator

import pytest

from tests.harness.skips import FOLDER, rows

ALLOWED = rows("private_allowed.txt")
NAMED_TUPLES = {"_asdict", "_replace"}
"""Public, although they begin with an underscore."""


def private_names(source: str) -> Iterator[str]:
    """Yield names with one leading underscore that are asked of anything but the test's own object or class."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own and node.attr not in NAMED_TUPLES:
                yield node.attr


def uses() -> set[tuple[str, str]]:
    """Return the file and the name of each use."""
    files = {path.relative_to(FOLDER.parent).as_posix(): path for path in FOLDER.rglob("*.py")}
    return {(name, used) for name, path in files.items() for used in private_names(path.read_text())}


def is_allowed(row: list[str], file: str, name: str) -> bool:
    where, allowed, _ = row
    return allowed in (name, "*") and (file.startswith(where) if where.endswith("/") else file == where)


def test_private_names_in_tests_are_allowed_by_a_row() -> None:
    left = {use for use in uses() if not any(is_allowed(row, *use) for row in ALLOWED)}
    assert not left, "assert what can be seen from outside"


@pytest.mark.parametrize("row", ALLOWED, ids=lambda row: f"{row[0]} {row[1]}")
def test_allowed_private_name_occurs_and_has_a_reason(row: list[str]) -> None:
    assert any(is_allowed(row, *use) for use in uses())
    assert len(row[2]) > 10


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("box._tasks", ["_tasks"]),
        ("self.box._tasks = 1", ["_tasks"]),
        ("super()._scope()", ["_scope"]),
        ("one._asdict(), one._replace(a=1), one.__class__, self._tasks, cls._made", []),
    ],
)
def test_private_names_are_those_of_other_objects(source: str, found: list[str]) -> None:
    assert list(private_names(source)) == found
