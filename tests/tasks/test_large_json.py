"""Large JSON in steps reads and writes what a reader in one step does."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.tasks import large_json
from appliance.tasks.large_json import BadJson, Numbers, listed, read_json, write_json

pytestmark = pytest.mark.gate("takes seconds")


def whole(value: Any) -> Any:
    """With every `Numbers` read."""
    if isinstance(value, Numbers):
        return value.array(np.dtype(np.float64), lambda step: np.array(step, np.float64)).tolist()
    if isinstance(value, dict):
        return {key: whole(each) for key, each in value.items()}
    return [whole(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    """So that a few bytes are large."""
    with pytest.MonkeyPatch.context() as patch:
        for name, count in (("LARGE_BYTES", 8), ("_LONG_BYTES", 16), ("_STEP_BYTES", 120), ("_SCAN_BYTES", 16)):
            patch.setattr(large_json, name, count)
        for name, count in (("_WRITTEN", 3), ("_PLAIN_BYTES_MAX", 10_000), ("_STRINGS_MAX", 1000)):
            patch.setattr(large_json, name, count)
        yield


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    count = int(np.prod(shape))
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-9, 9)
    return np.array(draw(st.lists(numbers, min_size=count, max_size=count)), np.float64).reshape(shape).tolist()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text() | tensors(),
    lambda inner: (
        st.dictionaries(st.text(), inner, max_size=4) | st.lists(st.dictionaries(st.text(), inner), max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.sampled_from([None, 2]))
def test_stepwise_json_reader_reads_as_orjson_does(value: Any, indent: int | None) -> None:
    """Whatever surrounds the numbers: strings with brackets, quotes and backslashes, spaces and line ends."""
    text = json.dumps(value, indent=indent).encode()
    assert whole(read_json(text)) == orjson.loads(text)
    assert whole(read_json(memoryview(text))) == orjson.loads(text)


@given(st.text(alphabet='[]{},:"\\ 0123456789.eE-+truefalsn\n', max_size=80))
def test_stepwise_json_reader_refuses_bodies_that_orjson_refuses(text: str) -> None:
    """Any text: the same value, or both refuse it. Lists that are no tensor are refused here only."""
    try:
        expected = orjson.loads(text)
    except orjson.JSONDecodeError:
        with pytest.raises((BadJson, ValueError, TypeError)):
            whole(read_json(text.encode()))
        return
    try:
        got = whole(read_json(text.encode()))
    except (BadJson, ValueError, TypeError):
        return
    assert got == expected


@pytest.mark.parametrize(
    "text",
    [
        b"[[1,2,3,4,5],[1,2,3,4]]",
        b"[[1,2],[3,4],5,6,7,8,9]",
        b"[[1,2]3,[4,5],[6,7],[8,9]]",
        b"[1,2,3,4,5,6,7,8,9,]",
        b"[1,,2,3,4,5,6,7,8,9]",
        b"[1,2,3,4,5,6 7,8,9,0]",
        b"[[[[1,2,3,4,5,6,7,8]]]",
        b"[" * 40 + b"1" + b"]" * 40,
        b"[" + b"1" * 200 + b"]",
        b"[       ,        ,       ]",
    ],
)
def test_stepwise_json_reader_refuses_lists_that_are_no_tensor(text: bytes) -> None:
    """Uneven, cut off, with a piece missing, or deeper than any tensor."""
    with pytest.raises((BadJson, OverflowError)):
        whole(read_json(text))


@pytest.mark.parametrize("text", [b'["",' + b'"",' * 2000 + b'""]', b"[{" * 10_000, b'"' + b'\\"' * 2000])
def test_stepwise_json_reader_refuses_too_many_parts(text: bytes) -> None:
    """A body that cannot be read in large steps is refused early."""
    with pytest.raises(BadJson, match="has more than"):
        read_json(text)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_stepwise_json_writer_writes_as_orjson_does(value: Any) -> None:
    """Long lists are written in pieces; the text is the same."""
    assert write_json(value) == orjson.dumps(value)
    array = np.arange(20, dtype=np.float32)
    assert json.loads(write_json({"x": array})) == {"x": array.tolist()}


def test_stepwise_json_writer_writes_vectors_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also short vectors: one call that writes all would hold the interpreter for as long."""
    monkeypatch.setattr(large_json, "_LISTED", 3)
    vectors = [listed(row) for row in np.arange(12.0).reshape(4, 3)]
    assert vectors == np.arange(12.0).reshape(4, 3).tolist()
    assert listed(np.arange(8)) == list(range(8))
    calls: list[int] = []

    class Counting:
        Fragment, OPT_SERIALIZE_NUMPY, OPT_NON_STR_KEYS = orjson.Fragment, orjson.OPT_SERIALIZE_NUMPY, 0

        @staticmethod
        def dumps(value: Any, option: int = 0) -> bytes:
            calls.append(len(value))
            return orjson.dumps(value, option=option)

    monkeypatch.setattr(large_json, "orjson", Counting)
    assert write_json({"embeddings": vectors}) == orjson.dumps({"embeddings": vectors})
    assert calls == [3, 3, 3, 3, 1]
