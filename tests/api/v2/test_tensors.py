"""Tensors on the wire: every datatype both ways, as the official client writes and reads them, and nothing but
BadTensor for nonsense.
"""

import json
import struct
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from appliance.api.v2.classification import is_slow_to_classify
from appliance.api.v2.tensors import Body, InferCall, encode_infer, make_call, read_header
from appliance.domain.errors import BadTensor
from appliance.tasks.datatypes import DTYPES

NUMBERS = sorted(set(DTYPES) - {"BYTES"})
every_number = pytest.mark.parametrize("word", NUMBERS)
shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def parse_infer(body: Body, json_length: int | None) -> InferCall:
    """A body as the handler reads it."""
    return make_call(read_header(body, json_length), body)


def arrays(word: str, *, finite: bool = False) -> st.SearchStrategy[np.ndarray]:
    elements = {"allow_nan": not finite, "allow_infinity": not finite} if word.startswith("FP") else None
    return hnp.arrays(DTYPES[word], shapes, elements=elements)


def body_of(header: Any, *chunks: bytes) -> tuple[bytes, int]:
    text = json.dumps(header).encode()
    return b"".join([text, *chunks]), len(text)


def parse(header: Any, *chunks: bytes) -> InferCall:
    return parse_infer(*body_of(header, *chunks))


def tensor(word: str, shape: Any, data: Any = None, **parameters: Any) -> dict[str, Any]:
    described = {"name": "x", "datatype": word, "shape": shape, "parameters": parameters}
    return described if data is None else {**described, "data": data}


def call(*, binary: bool) -> InferCall:
    return InferCall("7", {}, None, {}, binary, {})


# -- the official client -----------------------------------------------------------------------------------------------


def as_the_client_sends(array: np.ndarray, word: str, *, binary: bool) -> InferCall:
    given = triton.InferInput("x", list(array.shape), word)
    given.set_data_from_numpy(array, binary_data=binary)
    wanted = [triton.InferRequestedOutput("y", binary_data=binary)]
    body, length = triton.InferenceServerClient.generate_request_body([given], outputs=wanted, request_id="9")
    return parse_infer(body, length)


def as_the_client_reads(body: bytes, length: int | None) -> np.ndarray:
    result = triton.InferenceServerClient.parse_response_body(body, header_length=length).as_numpy("y")
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize(
    ("word", "binary"),
    [
        (word, binary) for word in NUMBERS for binary in (True, False) if binary or word != "FP16"
    ],  # the client refuses it
)
@given(data=st.data())
def test_numbers_of_the_official_client_arrive_and_return_bit_by_bit(
    word: str, binary: bool, data: st.DataObject
) -> None:
    array = data.draw(arrays(word, finite=not binary))
    got = as_the_client_sends(array, word, binary=binary)
    assert got.id == "9"
    assert got.outputs == ["y"]
    assert (got.inputs["x"].dtype, got.inputs["x"].shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(got.inputs["x"], array)
    body, length = encode_infer(got, {"y": array}, "m", "2", {"variant": "int8"})
    assert (length is not None) is binary
    np.testing.assert_array_equal(as_the_client_reads(body, length), array)


@pytest.mark.parametrize("binary", [True, False])
@given(values=st.lists(texts, min_size=1, max_size=6))
def test_texts_of_the_official_client_arrive_and_return(values: list[str], binary: bool) -> None:
    """BYTES: UTF-8 text of any length, empty ones too."""
    array = np.array([value.encode() for value in values], dtype=np.object_).reshape(1, -1)
    got = as_the_client_sends(array, "BYTES", binary=binary)
    assert got.inputs["x"].tolist() == [values]
    body, length = encode_infer(got, {"y": got.inputs["x"]}, "m", "2", {"variant": "int8"})
    answer = as_the_client_reads(body, length)
    assert [v.decode() if isinstance(v, bytes) else v for v in answer.ravel()] == values


# -- requests ----------------------------------------------------------------------------------------------------------


@every_number
@given(data=st.data())
def test_json_tensor_data_may_be_nested_or_flat(word: str, data: st.DataObject) -> None:
    array = data.draw(arrays(word, finite=True))
    for listed in (array.tolist(), array.ravel().tolist()):
        got = parse({"inputs": [tensor(word, list(array.shape), listed)]}).inputs["x"]
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)


def test_nested_json_texts_keep_the_order_of_rows() -> None:
    rows = [["a", "b"], ["c", "d"], ["e", "f"]]
    assert parse({"inputs": [tensor("BYTES", [3, 2], rows)]}).inputs["x"].tolist() == rows


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("UINT64", 2**64 - 1),
        ("INT64", -(2**63)),
        ("INT64", 2**63 - 1),
        ("UINT8", 255),
        ("INT8", -128),
        ("FP32", 2**53),
        ("FP16", 65504),
    ],
)
def test_largest_and_smallest_values_of_a_datatype_arrive_exactly(word: str, value: int) -> None:
    """Beside a zero."""
    assert parse({"inputs": [tensor(word, [2], [0, value])]}).inputs["x"].tolist() == [0, value]


@pytest.mark.parametrize(
    ("word", "value", "words"),
    [
        ("UINT8", 256, "does not fit"),
        ("UINT8", -1, "does not fit"),
        ("INT8", 128, "does not fit"),
        ("INT64", 2**63, "does not fit"),
        ("UINT64", -1, "does not fit"),
        ("UINT64", 2**64, "whole numbers"),
        ("FP32", 1e39, "does not fit"),
        ("FP16", 65520, "does not fit"),
        ("INT32", 1.5, "whole numbers"),
        ("INT32", 1.0, "whole numbers"),
        ("INT32", True, "whole numbers"),
        ("INT32", "1", "whole numbers"),
        ("FP32", "1.5", "numbers"),
        ("FP32", None, "numbers"),
        ("FP32", True, "numbers"),
        ("BOOL", 1, "true or false"),
        ("BYTES", 1, "strings"),
        ("BYTES", None, "strings"),
    ],
)
def test_json_values_that_do_not_fit_the_datatype_are_refused(word: str, value: Any, words: str) -> None:
    """A value is never bent into a type: too large, cut, or of another kind is refused, whatever stands beside it."""
    neighbour = {"BOOL": True, "BYTES": "a"}.get(word, 1)
    for data in ([value], [neighbour, value], [[neighbour], [value]]):
        with pytest.raises(BadTensor, match=words):
            parse({"inputs": [tensor(word, [len(data)], data)]})


def test_long_text_among_numbers_is_refused_without_taking_memory() -> None:
    """Room for so many long texts would be 40 GB."""
    with pytest.raises(BadTensor, match="whole numbers"):
        parse({"inputs": [tensor("INT32", [100_001], [1] * 100_000 + ["a" * 100_000])]})


def test_binary_bool_bytes_become_zero_or_one() -> None:
    """A byte that is neither becomes true."""
    got = parse({"inputs": [tensor("BOOL", [3], binary_data_size=3)]}, b"\x00\x01\x02").inputs["x"]
    assert got.view(np.uint8).tolist() == [0, 1, 1]


def test_binary_tensor_is_a_view_where_aligned() -> None:
    """A tensor that is not aligned is copied, and both are right."""
    seen = set()
    for pad in range(8):
        text = json.dumps({"id": "i" * pad, "inputs": [tensor("FP64", [2], binary_data_size=16)]}).encode()
        body = bytearray(text + np.array([1.5, 2.5]).tobytes())
        got = parse_infer(body, len(text)).inputs["x"]
        assert got.tolist() == [1.5, 2.5]
        assert got.flags.aligned
        seen.add(np.shares_memory(got, np.frombuffer(body, np.uint8)))
    assert seen == {True, False}


def test_binary_and_json_tensors_are_taken_in_the_order_of_the_list() -> None:
    inputs = [
        {**tensor("FP32", [1], binary_data_size=4), "name": "a"},
        {**tensor("FP32", [1], [2.0]), "name": "b"},
        {**tensor("INT64", [1], binary_data_size=8), "name": "c"},
    ]
    got = parse({"inputs": inputs}, np.float32(1).tobytes(), np.int64(3).tobytes()).inputs
    assert {name: array.item() for name, array in got.items()} == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(("id_", "expected"), [("a", "a"), ("", None), (None, None), (7, "7")])
def test_request_id_comes_back_as_text(id_: Any, expected: str | None) -> None:
    """Text or number; without an id there is none."""
    assert parse({"id": id_, "inputs": [tensor("FP32", [1], [1])]}).id == expected


def test_requested_outputs_override_the_default_of_the_request() -> None:
    """Each output says whether it is wanted as JSON or binary; the others follow the request's default."""
    header = {
        "inputs": [tensor("FP32", [1], [1])],
        "parameters": {"binary_data_output": True, "timeout": 5},
        "outputs": [{"name": "a", "parameters": {"binary_data": False}}, {"name": "b"}],
    }
    got = parse(header)
    assert (got.outputs, got.binary, got.binary_default) == (["a", "b"], {"a": False}, True)
    assert got.parameters["timeout"] == 5
    assert parse({"inputs": header["inputs"], "outputs": []}).outputs is None


GOOD = {"inputs": [tensor("FP32", [1], [1])]}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ([], "JSON object"),
        ({}, "inputs: must be a list"),
        ({"inputs": []}, "at least one"),
        ({"inputs": {}}, "inputs: must be a list"),
        ({"inputs": ["x"]}, r"inputs\[0\]: must be an object"),
        ({"inputs": [{"name": 1, "datatype": "FP32"}]}, "name and datatype"),
        ({"inputs": [{"name": "x", "datatype": []}]}, "name and datatype"),
        ({"inputs": [tensor("FP32", [1], [1])] * 2}, "appears twice"),
        ({"inputs": [tensor("FP32", None, [1])]}, "shape must be a list"),
        ({"inputs": [tensor("FP32", [1] * 33, [1])]}, "at most 32"),
        ({"inputs": [tensor("FP32", [-1], [1])]}, "whole numbers ≥ 0"),
        ({"inputs": [tensor("FP32", [True], [1])]}, "whole numbers ≥ 0"),
        ({"inputs": [tensor("FP32", [1.0], [1])]}, "whole numbers ≥ 0"),
        ({"inputs": [tensor("FP32", [2**40, 2], [1])]}, "too large"),
        ({"inputs": [tensor("FP32", [0, 2**62], [])]}, "too large"),
        ({"inputs": [tensor("FP32", [2], [1])]}, "1 elements for shape"),
        ({"inputs": [tensor("FP32", [1])]}, "needs data"),
        ({"inputs": [tensor("FP32", [1], {"a": 1})]}, "needs data"),
        ({"inputs": [tensor("BF16", [1], [1])]}, "BF16"),
        ({"inputs": [tensor("float", [1], [1])]}, "not supported"),
        ({"inputs": [tensor("FP32", [3], [[1, 2], [3]])]}, "equal depth and length"),
        ({"inputs": [tensor("FP32", [2], [[1], 2])]}, "equal depth and length"),
        ({"inputs": [tensor("FP32", [2], [1, [2]])]}, "numbers"),
        ({"inputs": [tensor("FP32", [1], binary_data_size=4)]}, "does not fit the 0 bytes"),
        ({"inputs": [tensor("FP32", [1], binary_data_size=-4)]}, "does not fit"),
        ({"inputs": [tensor("FP32", [1], binary_data_size="4")]}, "does not fit"),
        ({"inputs": [tensor("FP32", [1], binary_data_size=0)]}, "0 bytes for shape"),
        ({"inputs": [{**tensor("FP32", [1], [1]), "parameters": 3}]}, "parameters: must be an object"),
        ({**GOOD, "parameters": []}, "parameters: must be an object"),
        ({**GOOD, "outputs": {}}, "outputs: must be a list"),
        ({**GOOD, "outputs": [{"name": "y"}] * 1025}, "outputs: at most 1024 may be named"),
        ({**GOOD, "outputs": [{}]}, r"outputs\[0\]"),
        ({**GOOD, "outputs": [{"name": "y", "parameters": 1}]}, "must be an object"),
        ({**GOOD, "id": ["a"]}, "id: must be a string"),
    ],
)  # fmt: skip
def test_wrong_request_header_is_refused_naming_the_key(header: Any, words: str) -> None:
    with pytest.raises(BadTensor, match=words) as caught:
        parse(header)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",
        struct.pack("<I", 5) + b"abc",
        struct.pack("<I", 1) + b"a" + b"\x00\x00",
        struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"b",
        b"",
        struct.pack("<I", 2**32 - 1),
    ],
)
def test_broken_binary_text_is_refused(data: bytes) -> None:
    """Lengths that end early, run over, or are too many or too few."""
    with pytest.raises(BadTensor):
        parse({"inputs": [tensor("BYTES", [1], binary_data_size=len(data))]}, data)


def test_binary_text_that_is_not_utf_8_is_refused() -> None:
    """ONNX Runtime would give the graph what Python prints for such bytes."""
    raw = struct.pack("<I", 2) + b"\xff\xfe"
    with pytest.raises(BadTensor, match="no UTF-8"):
        parse({"inputs": [tensor("BYTES", [1], binary_data_size=6)]}, raw)


@pytest.mark.parametrize("length", [-1, 0, 10**9])
def test_json_header_length_that_does_not_fit_is_refused_by_name(length: int) -> None:
    """A wrong Inference-Header-Content-Length is named as such."""
    with pytest.raises(BadTensor, match="Inference-Header-Content-Length"):
        parse_infer(b"{}", length)


def test_bytes_behind_the_last_tensor_are_refused() -> None:
    with pytest.raises(BadTensor, match="3 bytes of the body belong to no tensor"):
        parse(GOOD, b"abc")


# -- fuzz --------------------------------------------------------------------------------------------------------------

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from([*DTYPES, "x"])
)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3), max_leaves=12
)
odd_tensors = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("x") | texts | trees,
        "datatype": st.sampled_from(sorted(DTYPES)) | trees,
        "shape": st.lists(st.integers(0, 3) | st.integers(0, 2**64 - 1), max_size=3) | trees,
        "data": st.lists(st.integers(-3, 300) | st.floats(-10, 10) | st.booleans() | texts, max_size=6) | trees,
        "parameters": st.fixed_dictionaries({"binary_data_size": st.integers(-1, 40) | trees}) | trees,
    },
)
odd_headers = st.fixed_dictionaries(
    {},
    optional={
        "id": trees,
        "inputs": st.lists(odd_tensors, max_size=3) | trees,
        "outputs": st.lists(st.fixed_dictionaries({}, optional={"name": trees, "parameters": trees})) | trees,
        "parameters": trees,
    },
)


def parse_or_refuse(body: bytes, length: int | None) -> None:
    try:
        got = parse_infer(body, length)
    except BadTensor:
        return
    for array in got.inputs.values():  # what is let in is whole
        assert array.dtype in DTYPES.values()
        array.copy()


@given(header=odd_headers, tail=st.binary(max_size=40))
def test_request_header_of_any_json_is_read_or_refused(header: Any, tail: bytes) -> None:
    """With BadTensor."""
    body, length = body_of(header, tail)
    parse_or_refuse(body, length)


@given(body=st.binary(max_size=60), length=st.none() | st.integers(-5, 80))
@example(body=b'{"id":' + b"[" * 1020 + b"]" * 1020 + b"}", length=None)
@example(body=b"[" * 100_000, length=None)
@example(body=b'{"inputs":[{"name":"\\ud800","datatype":"BYTES","shape":[1],"data":["\\ud800"]}]}', length=None)
@example(
    body=b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":' + b"[" * 1000 + b"1" + b"]" * 1000 + b"}]}",
    length=None,
)
def test_request_body_of_any_bytes_is_read_or_refused(body: bytes, length: int | None) -> None:
    """With BadTensor, never anything else."""
    parse_or_refuse(body, length)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_response_names_model_version_and_request_id() -> None:
    """The header has what the protocol asks for, and the caller's id."""
    body, length = encode_infer(call(binary=False), {"y": np.ones((1, 2), np.float32)}, "m", "2", {"variant": "int8"})
    assert length is None
    assert json.loads(body) == {
        "model_name": "m",
        "model_version": "2",
        "parameters": {"variant": "int8"},
        "id": "7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 1.0]}],
    }


def test_response_outputs_are_json_or_binary_as_requested() -> None:
    """Both in one answer."""
    asked = InferCall(None, {}, None, {"a": True, "b": False}, False, {})
    outputs: dict[str, np.ndarray] = {"a": np.array([1, 2], np.int32), "b": np.array([3], np.int64)}
    body, length = encode_infer(asked, outputs, "m", "2", {"variant": "int8"})
    header = json.loads(body[:length])
    assert "id" not in header
    assert header["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert header["outputs"][1]["data"] == [3]
    assert body[length:] == outputs["a"].tobytes()


def test_nan_and_infinity_become_null_in_json_and_stay_in_binary() -> None:
    values = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    body, _ = encode_infer(call(binary=False), {"y": values}, "m", "2", {"variant": "int8"})
    assert json.loads(body)["outputs"][0]["data"] == [1, None, None, None]
    body, length = encode_infer(call(binary=True), {"y": values}, "m", "2", {"variant": "int8"})
    np.testing.assert_array_equal(as_the_client_reads(body, length), values)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.arange(10, dtype=np.int64)[::2],
        np.zeros((0, 3), np.float32),
        np.float32(1.5).reshape(()),
        np.array(["a", "bc"]),
        np.array([b"a", b"bc"]),
        np.array([1.5], np.float16),
    ],
    ids=["transposed", "strided", "empty", "scalar", "unicode", "bytes", "half"],
)
def test_response_arrays_of_any_layout_are_written_in_row_major_order(array: np.ndarray, binary: bool) -> None:
    """With their shape."""
    body, length = encode_infer(call(binary=binary), {"y": array}, "m", "2", {"variant": "int8"})
    text = body if length is None else body[:length]
    described = json.loads(text)["outputs"][0]
    assert described["shape"] == list(array.shape)
    got = parse_infer(body.replace(b'"outputs"', b'"inputs" '), length).inputs["y"]
    assert got.shape == array.shape
    wanted = [v.decode() if isinstance(v, bytes) else v for v in array.ravel().tolist()]
    assert got.ravel().tolist() == wanted


def test_requests_with_the_same_header_keep_their_own_data() -> None:
    """What the JSON says is remembered between requests, the values never are; a changed header is read anew."""
    header = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}]}
    first = parse(header, np.array([1, 2], np.float32).tobytes())
    second = parse(header, np.array([3, 4], np.float32).tobytes())
    assert (first.inputs["x"].tolist(), second.inputs["x"].tolist()) == ([1, 2], [3, 4])
    with pytest.raises(BadTensor, match="belong to no tensor"):
        parse(header, bytes(9))
    with pytest.raises(BadTensor, match="does not fit"):
        parse(header, bytes(7))
    header["inputs"][0]["datatype"] = "INT32"
    assert parse(header, np.array([5, 6], np.int32).tobytes()).inputs["x"].tolist() == [5, 6]


def test_request_header_too_long_to_remember_is_read() -> None:
    size = {"binary_data_size": 4}
    header = {"inputs": [{"name": f"x{i}", "datatype": "FP32", "shape": [1], "parameters": size} for i in range(20)]}
    got = parse(header, np.arange(20, dtype=np.float32).tobytes())
    assert [float(array[0]) for array in got.inputs.values()] == list(range(20))


@pytest.mark.parametrize(
    ("shape", "count", "is_slow"),
    [((1, 1000), 5, False), ((16, 1000), 1000, True), ((8000, 2), 1, True), ((1, 100_000), 1, True), ((), 1, False)],
)
def test_classification_of_many_classes_counts_as_slow(shape: tuple[int, ...], count: int, is_slow: bool) -> None:
    """Each is a text, and each item has its values sorted."""
    assert is_slow_to_classify({"y": np.zeros(shape, np.float32)}, {"y": count}) == is_slow


def test_classification_of_many_outputs_counts_as_slow_together() -> None:
    outputs = {f"y{number}": np.zeros((1, 8000), np.float32) for number in range(2)}
    assert not is_slow_to_classify(outputs, {"y0": 1})
    assert is_slow_to_classify(outputs, {"y0": 1, "y1": 1})
