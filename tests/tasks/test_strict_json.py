"""Texts of callers are counted before they are read: names, objects, values and depth, whatever stands in strings."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.tasks import strict_json
from appliance.tasks.strict_json import DEPTH_MAX, NAMES_MAX, VALUES_MAX, TooMuch
from tests.harness.lanes import examples

WORDS = st.text(st.sampled_from('a:{}[],"\\\\\n\u2028é😀'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)
PIECE = 256 * 1024
"""Texts are counted in pieces of so many bytes."""
ODD = 'a\\":{[,\\\\\\"'
"""As it stands in a string: all that has a meaning outside of one."""


def nested(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


def names(count: int, prefix: str = "") -> str:
    return "{" + ",".join(f'"{prefix}{number}":0' for number in range(count)) + "}"


def listed(count: int, one: str) -> str:
    return "[" + ",".join([one] * count) + "]"


@examples(gate=200)
@given(VALUES, st.booleans(), st.integers(0, 80))
def test_json_of_callers_is_read_as_by_the_standard_library(value: Any, is_ascii: bool, ahead: int) -> None:
    """Also where a string, or an escape in it, stands on the border of two pieces."""
    text = json.dumps(value, ensure_ascii=is_ascii)
    assert strict_json.read(text) == value
    assert strict_json.read(b" " * (PIECE - ahead) + text.encode()) == value


@examples(gate=100)
@given(st.lists(WORDS, min_size=1, max_size=8), st.integers(0, 100))
def test_what_stands_in_strings_does_not_count(words: list[str], ahead: int) -> None:
    """Full strings in a text at the bound, cut into pieces anywhere."""
    text = json.dumps([*words, '\\"' * 1000, ":" * (NAMES_MAX + 1), "{" * (NAMES_MAX + 1), "[" * (VALUES_MAX + 1)])
    full = f"{' ' * (PIECE - ahead)}[{text},{listed(NAMES_MAX, '{}')}]"
    assert strict_json.read(full)[0][: len(words)] == words
    with pytest.raises(TooMuch, match=f"has more than {NAMES_MAX} objects"):
        strict_json.read(f"[{full},{{}}]")


@pytest.mark.parametrize("prefix", ["", ODD])
def test_text_with_too_many_names_is_refused(prefix: str) -> None:
    """In one object or in several, with blanks or without."""
    assert len(strict_json.read(names(NAMES_MAX, prefix))) == NAMES_MAX
    for text in (names(NAMES_MAX + 1, prefix), listed(NAMES_MAX + 1, '{"a" : 1}'), names(2 * NAMES_MAX) + "]"):
        with pytest.raises(TooMuch, match=f"has more than {NAMES_MAX} names"):
            strict_json.read(text)


def test_text_with_too_many_values_is_refused() -> None:
    assert strict_json.read(listed(VALUES_MAX, f'"{ODD}"'))[-1] == json.loads(f'"{ODD}"')
    for text in (listed(VALUES_MAX + 1, "1"), listed(VALUES_MAX, "[]"), "[" * (VALUES_MAX + 1)):
        with pytest.raises(TooMuch, match=f"has more than {VALUES_MAX} values"):
            strict_json.read(text)


@pytest.mark.parametrize("read", [strict_json.read, strict_json.read_checked])
def test_text_that_is_nested_too_deep_is_refused(read: Any) -> None:
    """Lists and objects; brackets in strings are none."""
    assert read(nested(DEPTH_MAX, json.dumps("[" * 1000))) is not None
    assert read(listed(1000, nested(DEPTH_MAX - 1))) is not None
    for text in (nested(DEPTH_MAX + 1), '{"a":' * 40 + nested(30) + "}" * 40, listed(9, nested(DEPTH_MAX)), "[" * 9999):
        with pytest.raises(TooMuch, match=f"nested deeper than {DEPTH_MAX} levels"):
            read(text)


def test_object_with_more_names_than_a_caller_may_use_is_refused() -> None:
    """However deep it stands; several may have them together."""
    assert len(strict_json.read(f"[{names(10)},{names(9)}]", names_max=10)) == 2
    with pytest.raises(TooMuch, match="an object has more than 10 names"):
        strict_json.read(f'{{"a": [[{names(11)}]]}}', names_max=10)


@pytest.mark.parametrize("text", ["", "{", "[1,]", "NaN", '"\\ud800"', "1e999", b"\x80", b'"\xff"', "[]]", '["\\'])
def test_text_that_is_no_strict_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        strict_json.read(text)


def test_file_that_is_read_apart_has_any_number_of_names() -> None:
    assert len(strict_json.read_checked(names(NAMES_MAX + 1))) == NAMES_MAX + 1


def test_text_with_tensors_has_any_number_of_values_and_bounded_names() -> None:
    assert strict_json.check(listed(2 * VALUES_MAX, "1").encode(), has_tensors=True) == 0
    with pytest.raises(TooMuch):
        strict_json.check(names(NAMES_MAX + 1).encode(), has_tensors=True)


def test_quoted_names_inside_a_string_are_no_names() -> None:
    """As in metadata that carry a JSON document as a text."""
    document = json.dumps({str(number): number for number in range(2 * NAMES_MAX)})
    assert strict_json.read(json.dumps({"document": document})) == {"document": document}
