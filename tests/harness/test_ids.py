"""Cases of tables have ids that say what is in them."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.harness.ids import readable


@dataclass(frozen=True)
class _Case:
    status: int
    path: str = "/"


@pytest.mark.parametrize(
    ("value", "id"),
    [
        ({"content-length": "x", "host": "box"}, "content-length=x,host=box"),
        ({}, "empty"),
        ((1, "two", {"three": 4}), "1,two,three=4"),
        ({"b", "a"}, "a,b"),
        (_Case(404), "_Case status=404"),
        (ValueError("no number"), "ValueError no number"),
        (partial(max, 2), "max 2"),
        ((object(),), "object"),
        (["x" * 100], "x" * 59 + "~"),
        ({"a\0": "ß"}, r"a\x00=\xdf"),
        ("text", None),
        (5, None),
        (Path("/"), None),
        (_Case, None),
    ],
)
def test_id_of_a_value_says_what_is_in_it(value: object, id: str | None) -> None:
    assert readable(value) == id
