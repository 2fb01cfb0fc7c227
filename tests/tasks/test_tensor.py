"""Tensors in JSON and .npz: fitted to the graph or refused in words, never a bomb."""

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from appliance.domain.catalogue import StateSpec, TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia, BadMetadata, BadTensor
from appliance.tasks import TASKS, tensor
from appliance.tasks.base import Decoded, Media, Target

TASK = TASKS[TaskKind.TENSOR]
TWO = Target((TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "INT64", (1, -1))), ())
ONE = Target((TensorSpec("a", "FP64", (-1,)),), ())
SPEC = TaskSpec()


def decode(body: bytes, to: Target = TWO, spec: TaskSpec = SPEC) -> dict[str, np.ndarray]:
    (step,) = TASK.decode(Media(body), spec, to, {}).steps
    return step


def npz(**given: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **given)
    return file.getvalue()


def test_json_and_npz_give_equal_tensors() -> None:
    """Nested lists and protocol entries, in the graph's types; a missing batch axis is added."""
    a, b = np.array([[1, 2], [3, 4]], np.float64), np.array([5, 6, 7])
    bodies = [
        json.dumps({"inputs": {"a": a.tolist(), "b": b.tolist()}}).encode(),
        json.dumps(
            {"inputs": {"a": {"shape": [2, 2], "datatype": "FP64", "data": [1, 2, 3, 4]}, "b": [b.tolist()]}}
        ).encode(),
        json.dumps(
            {"inputs": [{"name": "a", "data": a.tolist()}, {"name": "b", "shape": [1, 3], "data": b.tolist()}]}
        ).encode(),
        npz(a=a, b=b),
    ]
    for body in bodies:
        step = decode(body)
        assert (str(step["a"].dtype), step["a"].tolist()) == ("float32", [[1, 2], [3, 4]])
        assert (str(step["b"].dtype), step["b"].tolist()) == ("int64", [[5, 6, 7]])


def test_text_tensor_is_read_and_answered_as_strings() -> None:
    """BYTES in the protocol."""
    to = Target((TensorSpec("words", "BYTES", (-1,)),), ())
    step = decode(b'{"inputs": {"words": ["a", "\\u00e4"]}}', to)
    assert step["words"].tolist() == ["a", "ä"]
    body = TASK.encode([{"y": step["words"], "z": np.array([b"\xc3\xa4"], object)}], Decoded([]), SPEC).body
    assert body["outputs"]["y"] == {"shape": [2], "datatype": "BYTES", "data": ["a", "ä"]}
    assert body["outputs"]["z"]["data"] == ["ä"]


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        ({"a": [[1, 2]]}, "takes the inputs"),
        ({"a": [[1, 2]], "b": [1], "c": [1]}, "takes the inputs"),
        ({"a": [[1, 2, 3]], "b": [1]}, "has shape"),
        ({"a": [[[1, 2]]], "b": [1]}, "has shape"),
        ({"a": [[1, 2], [3]], "b": [1]}, "'a'"),
        ({"a": [["x", "y"]], "b": [1]}, "no number"),
        ({"a": [[None, 1]], "b": [1]}, "no number"),
        ({"a": {"shape": [3, 2], "data": [1, 2]}, "b": [1]}, "'a'"),
        ({"a": {"shape": "wide", "data": [1, 2]}, "b": [1]}, "'a'"),
    ],
)
def test_tensor_that_does_not_fit_is_refused_by_name(inputs: dict[str, Any], word: str) -> None:
    """Names, shapes and types, each with its reason."""
    with pytest.raises(BadTensor, match=word):
        decode(json.dumps({"inputs": inputs}).encode())


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b'{"a": 1}', b'{"inputs": 3}', b"PK\x03\x04 no zip", b'{"inputs":' + b"[" * 100_000]
)
def test_tensor_body_neither_json_nor_npz_is_refused(body: bytes) -> None:
    """Damaged or endless."""
    with pytest.raises(BadMedia):
        decode(body)


def test_picture_for_an_application_of_tensors_is_refused_with_what_it_takes() -> None:
    """As after an import that did not name the task."""
    with pytest.raises(BadMedia, match=r"takes tensors, as JSON or \.npz.*import the model with their task"):
        decode(b"\x89PNG\r\n\x1a\n")


def entry(name: str, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.writestr(name, data)
    return file.getvalue()


def npy(array: np.ndarray, pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=pickle)
    return file.getvalue()


def test_hostile_npz_archive_is_refused() -> None:
    """Pickles, headers that claim terabytes, archives that unpack to too much, other ways of packing."""
    wide = npy(np.zeros((2, 2))).replace(b"(2, 2), }" + b" " * 12, b"(2000000, 2000000), }")
    liar = npy(np.zeros(4)).replace(b"(4,)", b"(9,)")
    for body in (
        entry("a.npy", npy(np.array([{}], object), pickle=True)),
        entry("a.npy", wide),
        entry("a.npy", liar),
        entry("a.npy", b"\x93NUMPY\x01\x00\xff\xff"),
        entry("a.npy", npy(np.zeros(4)), zipfile.ZIP_BZIP2),
        npz(a=np.zeros(4))[:-30],
    ):
        with pytest.raises(BadMedia):
            decode(body, ONE)
    large = bytearray(npz(a=np.zeros(10)))
    size_at = large.index(b"PK\x01\x02") + 24  # what the directory says it unpacks to
    large[size_at : size_at + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(BadMedia, match="take more than"):
        decode(bytes(large), ONE)


def test_tensor_answer_omits_states_and_has_null_for_nan() -> None:
    spec = TaskSpec(state=(StateSpec("h", "hn", (1,)),))
    outputs: dict[str, np.ndarray] = {"y": np.array([[1.5, np.nan], [np.inf, 2]], np.float16), "hn": np.zeros(1)}
    body = TASK.encode([outputs], Decoded([]), spec).body
    assert body == {"outputs": {"y": {"shape": [2, 2], "datatype": "FP16", "data": [1.5, None, None, 2.0]}}}
    json.dumps(body, allow_nan=False)


@given(arrays(st.sampled_from([np.float32, np.int64, np.uint8, np.bool_]), array_shapes(max_dims=3, max_side=4)))
def test_tensor_answer_can_be_sent_as_a_request(array: np.ndarray) -> None:
    """The output of one model goes into the next as it is."""
    if array.dtype.kind == "f":
        array = np.nan_to_num(array)  # JSON has no infinities
    entry_of = tensor.to_json(array)
    text = json.dumps({"inputs": {"x": entry_of}})
    back = decode(text.encode(), Target((TensorSpec("x", entry_of["datatype"], array.shape),), ()))["x"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_tensor_score_is_the_nearness_of_the_worst_output() -> None:
    """By direction and scale for numbers, by equality for text; top-1 of an index."""
    answer = {"outputs": {"y": tensor.to_json(np.array([[1.0, 3.0]])), "z": tensor.to_json(np.array(["a", "b"]))}}
    assert TASK.similarity(answer, answer).value == pytest.approx(1.0)
    other: dict[str, Any] = {
        "outputs": {"y": tensor.to_json(np.array([[3.0, -1.0]])), "z": tensor.to_json(np.array(["a", "c"]))}
    }
    assert TASK.similarity(answer, other).value == 0.0
    other["outputs"]["y"] = tensor.to_json(np.array([[1.0, 3.0]]))
    assert TASK.similarity(answer, other).value == 0.5
    assert TASK.similarity({"outputs": {}}, answer).value == 0.0
    assert TASK.accuracy(answer, {"label": 1}).value == 1.0
    assert TASK.accuracy(answer, {"label": 0}).value == 0.0
    assert TASK.accuracy(answer, {"outputs": {"y": [[1, 3]]}}).value == 1.0
    assert TASK.accuracy(answer, {"outputs": {"y": [[2.0, 6.0]]}}).value == pytest.approx(0.5)
    with pytest.raises(BadMetadata, match="label"):
        TASK.accuracy(answer, {})


@pytest.mark.parametrize("word", ["FP32", "BYTES"])
def test_long_text_among_many_values_does_not_multiply_memory(word: str) -> None:
    """As many long texts would be 400 GB."""
    values: list[Any] = ["x" * 1_000_000, *["" if word == "BYTES" else 1] * 100_000]
    to = Target((TensorSpec("x", word, (-1,)),), ())
    body = json.dumps({"inputs": {"x": values}}).encode()
    if word == "BYTES":
        assert decode(body, to)["x"].tolist() == values
    else:
        with pytest.raises(BadTensor, match="no number"):
            decode(body, to)


def test_stated_tensor_shape_follows_the_rules_of_numpy() -> None:
    """With one side that follows from the others; nothing else is bent into shape."""
    to = Target((TensorSpec("x", "FP32", (-1, -1)),), ())
    for stated in ([2, 3], [-1, 3], [6, 1], [2, -1]):
        got = decode(json.dumps({"inputs": {"x": {"shape": stated, "data": list(range(6))}}}).encode(), to)["x"]
        np.testing.assert_array_equal(got, np.arange(6).reshape(stated))
    wrong: object
    for wrong in ([-1, -1], [4, -1], [-2, -3], [0, -1], [2, 3.0], [10**30, 10**30], {}, [[2], [3]]):
        with pytest.raises(BadTensor, match="shape"):
            decode(json.dumps({"inputs": {"x": {"shape": wrong, "data": list(range(6))}}}).encode(), to)


def test_tensor_larger_than_the_model_takes_is_refused_before_parsing() -> None:
    """Its values would be refused in other words."""
    to = Target((TensorSpec("x", "FP32", (-1,)),), (), shape_max={"x": (3,)})
    with pytest.raises(BadTensor, match="at most"):
        decode(b'{"inputs": {"x": ["a", "b", "c", "d"]}}', to)


def test_npz_archive_of_too_many_arrays_is_refused_unread() -> None:
    """An array's entry takes a kilobyte in memory, and fifty bytes in the file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(5000):
            archive.writestr(str(number), b"")
    with pytest.raises(BadMedia, match="more than 4096"):
        decode(file.getvalue(), ONE)
