"""Bodies that would become far larger than they are: refused before anything is made of them, or counted as what they
become.
"""

import io
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.domain.states import JobState
from appliance.tasks.large_json import LARGE_BYTES
from tests import toys
from tests.api.stand import Stand, StandWith, imported

pytestmark = pytest.mark.anyio

INFER, PREDICT = "/v2/models/adding/infer", "/v1/applications/adding/predict"
ROWS = 100_000
MB = 2**20
VALUES_MAX = 100_000
NAMES_MAX = 25_000
LABELS_MAX = 100_000
SMALL = {"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 1, 1, 1]]}}


def described(**facts: Any) -> dict[str, Any]:
    return {"name": "A", "datatype": "FP32", "shape": [1, 4]} | facts


def binary(described: dict[str, Any], data: bytes) -> tuple[bytes, dict[str, str]]:
    """A body and its headers."""
    text = json.dumps({"inputs": [described | {"parameters": {"binary_data_size": len(data)}}]}).encode()
    return text + data, {"Inference-Header-Content-Length": str(len(text))}


@pytest.mark.parametrize("padding", [0, LARGE_BYTES], ids=["small", "large"])
@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"name": "C", "data": [1, 2, 3, "x"]}, "there is no input 'C'"),
        ({"datatype": "FP64", "data": [1, 2, 3, "x"]}, "is float64, the variant takes FP32"),
        ({"datatype": "BYTES", "data": ["x", 1, 2, 3]}, "is object, the variant takes FP32"),
        ({"shape": [ROWS, 4], "data": ["x"]}, "the variant takes at most"),
        ({"shape": [4], "data": ["x"]}, r"the variant takes [-1, 4]"),
    ],
)
async def test_infer_input_that_does_not_fit_is_refused_before_its_data_is_read(
    stand: Stand, padding: int, facts: dict[str, Any], words: str
) -> None:
    """The first mistake is the one that costs nothing to find."""
    body = json.dumps({"inputs": [described(**facts)]}).encode() + b" " * padding
    answer = await stand.client("harbour").post(INFER, content=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]


@pytest.mark.parametrize("count", [4, LARGE_BYTES])
async def test_infer_texts_for_numbers_are_refused_unread(stand: Stand, count: int) -> None:
    """The texts are no UTF-8, which is not found out."""
    data = (struct.pack("<I", 1) + b"\xff") * count
    body, headers = binary(described(datatype="BYTES", shape=[count]), data)
    answer = await stand.client("harbour").post(INFER, content=body, headers=headers)
    assert answer.status_code == 400
    assert "is object, the variant takes FP32" in answer.json()["error"]


async def test_predict_tensors_that_do_not_fit_are_refused_unpacked(stand: Stand) -> None:
    """The packed data is damaged, and the long list ends in a word; neither is found out."""
    file = io.BytesIO()
    np.savez(file, A=np.zeros((3000, 5), np.float32), B=np.zeros((1, 4), np.float32))
    data = bytearray(file.getvalue())
    data[len(data) // 2] ^= 1
    long = b'{"inputs":{"A":[' + b"0," * LARGE_BYTES + b'nothing],"B":[[1,2,3,4]]}}'
    for body in (bytes(data), long):
        answer = await stand.client("harbour").post(PREDICT, content=body)
        assert answer.status_code == 422
        assert "input 'A' has shape [-1, 4]" in answer.json()["detail"]


@pytest.fixture
async def narrow(stand_with: StandWith, tmp_path: Path) -> AsyncIterator[Stand]:
    """A box that keeps little of bodies in memory, with a model that adds many rows."""
    async with stand_with(http={"inflight_bytes_max": 2 * MB, "body_bytes_max": MB}) as made:
        metadata = {"precisions": [], "shape_max": {"A": [ROWS, 4], "B": [ROWS, 4]}}
        model = toys.tiny_add(tmp_path / "add.onnx").read_bytes()
        job = await imported(made.client("harbour"), "wide", model, metadata=metadata)
        assert job["state"] == JobState.DONE
        yield made


def rows(count: int) -> dict[str, bytes]:
    """Bodies with so many rows of two inputs by the path that takes them; each takes 32 bytes in memory."""
    zeros = b",".join([b"0"] * 4 * count)
    head = b'{"name":"%b","datatype":"FP32","shape":[%d,4],"data":['
    inputs = b",".join(head % (name, count) + zeros + b"]}" for name in (b"A", b"B"))
    file = io.BytesIO()
    np.savez_compressed(file, A=np.zeros((count, 4), np.float32), B=np.zeros((count, 4), np.float32))
    return {
        "/v2/models/wide/infer": b'{"inputs":[' + inputs + b"]}",
        "/v1/applications/wide/predict": b'{"inputs":[' + inputs + b"]}",
        "/v1/applications/wide/predict?timeout_ms=60000": file.getvalue(),
    }


async def test_tensors_larger_than_the_body_budget_when_decoded_are_refused(narrow: Stand) -> None:
    """Sent as JSON, or packed in a few kB; what was counted is given back, and smaller ones are answered."""
    client = narrow.client("harbour")
    for path, body in rows(60_000).items():
        answer = await client.post(path, content=body)
        assert answer.status_code == 413, (path, answer.text)
        assert "what the box makes of it" in answer.text
        assert narrow.appliance.in_flight.bytes == 0
    for path, body in rows(20_000).items():
        assert (await client.post(path, content=body)).status_code == 200
        assert narrow.appliance.in_flight.bytes == 0


async def test_tensors_without_room_beside_other_tenants_bodies_are_refused_busy(narrow: Stand) -> None:
    """Their bodies would fit, but not what they are decoded to."""
    client = narrow.client("harbour")
    with narrow.appliance.in_flight.body("museum") as other:
        other.announce(MB)
        other.grow(MB)
        for path, body in rows(20_000).items():
            answer = await client.post(path, content=body)
            assert answer.status_code == 503, (path, answer.text)
            assert "retry-after" in answer.headers
    assert narrow.appliance.in_flight.bytes == 0


async def test_orders_with_too_many_values_are_refused(stand: Stand) -> None:
    """Whatever they say; commas in a text are no values."""
    client = stand.client("admin")
    many = {"name": "a", "more": [[]] * VALUES_MAX}
    for path in ("/v1/tenants", "/v2/repository/index"):
        text = json.dumps(many, separators=(",", ":"))
        answer = await client.post(path, content=text, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422)
        assert f"has more than {VALUES_MAX} values" in answer.text
    answer = await client.post("/v1/tenants", json={"name": "," * 2 * VALUES_MAX})
    assert answer.status_code == 422
    assert "values" not in answer.text


def many(count: int) -> dict[str, int]:
    return {f"p{number}": number for number in range(count)}


NAMES = many(NAMES_MAX + 1)
OBJECTS: list[dict[str, Any]] = [{}] * (NAMES_MAX + 1)
TENSORS = {"inputs": [described(data=[1, 2, 3, 4]), described(name="B", data=[1, 1, 1, 1])]}


@pytest.mark.parametrize(
    ("who", "call", "order", "what"),
    [
        ("harbour", f"POST {INFER}", TENSORS | {"parameters": NAMES}, "names"),
        ("harbour", f"POST {INFER}", TENSORS | {"parameters": {"many": OBJECTS}}, "objects"),
        ("harbour", f"POST {INFER}", TENSORS | {"outputs": [{"name": "SUM"}] * (NAMES_MAX + 1)}, "names"),
        ("harbour", f"POST {INFER}", {"inputs": [described(data=[1])] * NAMES_MAX}, "names"),
        ("harbour", f"POST {PREDICT}", {"inputs": NAMES}, "names"),
        ("harbour", f"POST {PREDICT}", {"inputs": OBJECTS}, "objects"),
        ("harbour", "POST /v1/pipelines", {"name": "p", "stages": OBJECTS}, "objects"),
        ("harbour", "POST /v1/applications", {"name": "a", "model": "digits", "more": NAMES}, "names"),
        ("harbour", "PATCH /v1/applications/digits", {"more": OBJECTS}, "objects"),
        ("device", "POST /v1/sessions", {"application": "digits", "fps": 1, "promise": NAMES}, "names"),
        ("admin", "POST /v1/simulations", {"edits": OBJECTS}, "objects"),
        ("harbour", "POST /v2/repository/models/adding/load", {"parameters": NAMES}, "names"),
        ("harbour", "POST /v2/repository/index", {"more": OBJECTS}, "objects"),
    ],
)
async def test_json_with_too_many_names_or_objects_is_refused(
    stand: Stand, who: str, call: str, order: dict[str, Any], what: str
) -> None:
    """Wherever it is sent, and whatever it says."""
    content = json.dumps(order, separators=(",", ":"))
    answer = await stand.client(who).request(
        *call.split(), content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert f"has more than {NAMES_MAX} {what}" in answer.text


async def test_infer_with_too_many_inputs_is_refused(stand: Stand) -> None:
    inputs = [described(name=f"i{number}", data=[]) for number in range(1025)]
    answer = await stand.client("harbour").post(INFER, json={"inputs": inputs})
    assert answer.status_code == 400
    assert answer.json()["error"] == "inputs: at most 1024 may be sent"


@pytest.mark.parametrize(
    ("metadata", "labels", "words"),
    [
        (NAMES, b"", f"metadata cannot be read as JSON: has more than {NAMES_MAX} names"),
        ({"params": NAMES}, b"", f"has more than {NAMES_MAX} names"),
        ({"state": OBJECTS}, b"", f"has more than {NAMES_MAX} objects"),
        ({}, b"".join(b"%x\n" % number for number in range(LABELS_MAX + 1)), f"at most {LABELS_MAX} names"),
    ],
    ids=["names", "names within", "objects", "labels"],
)
async def test_form_of_a_model_with_too_much_in_it_is_refused(
    stand: Stand, metadata: dict[str, Any], labels: bytes, words: str
) -> None:
    """No import begins, and nothing is left of its files."""
    form = {"name": "many", "task": "tensor", "metadata": json.dumps(metadata, separators=(",", ":"))}
    files = {"file": b"x"} | ({"labels": labels} if labels else {})
    answer = await stand.client("harbour").post("/v1/models", data=form, files=files)
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/bad-metadata"
    assert words in answer.json()["detail"]
    assert list((stand.state_dir / "scratch").iterdir()) == []


async def test_form_fields_count_as_bodies_in_memory(narrow: Stand) -> None:
    """Each of the fields is within its bound."""
    form = {f"field{number}": "x" * (MB - 1) for number in range(3)}
    assert (await narrow.client("harbour").post("/v1/models", data=form, files={"file": b"x"})).status_code == 413
    assert narrow.appliance.in_flight.bytes == 0
