"""The classification extension: the largest values of an output as texts."""

from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from appliance.demo.zoo import toys
from tests.api.stand import Stand

pytestmark = pytest.mark.anyio
PATH = "/v2/models/adding/infer"
ROWS = [[1.0, 5.0, 10.0, 4.0], [2.5, -1.0, 2.5, 0.0]]


def summed(rows: list[list[float]], *outputs: dict[str, Any]) -> dict[str, Any]:
    """A request whose output `SUM` is `rows`."""
    shape = [len(rows), 4]
    zeros = [0.0] * (4 * len(rows))
    return {
        "inputs": [
            {"name": "A", "shape": shape, "datatype": "FP32", "data": rows},
            {"name": "B", "shape": shape, "datatype": "FP32", "data": zeros},
        ],
        "outputs": list(outputs),
    }


async def test_classes_of_each_item_are_texts_with_the_largest_first(stand: Stand) -> None:
    """Of equal values the first; as many as there are where more are asked for."""
    client = stand.client("harbour")
    wanted = [["10.0:2", "5.0:1", "4.0:3", "1.0:0"], ["2.5:0", "2.5:2", "0.0:3", "-1.0:1"]]
    for count, shown in ((1, 1), (2, 2), (9, 4)):
        answer = await client.post(PATH, json=summed(ROWS, {"name": "SUM", "parameters": {"classification": count}}))
        (output,) = answer.json()["outputs"]
        data = [text for row in wanted for text in row[:shown]]
        assert output == {"name": "SUM", "datatype": "BYTES", "shape": [2, shown], "data": data}


async def test_classes_in_binary_are_read_by_the_official_client(stand: Stand) -> None:
    """As the client's `class_count` asks for them; digits have labels."""
    image = triton.InferInput("image", [1, 1, 8, 8], "FP32")
    image.set_data_from_numpy(np.zeros((1, 1, 8, 8), np.float32))
    wanted = [triton.InferRequestedOutput("probabilities", class_count=3)]
    body, length = triton.InferenceServerClient.generate_request_body([image], outputs=wanted)
    answer = await stand.client("harbour").post(
        "/v2/models/digits/infer", content=bytes(body), headers={"Inference-Header-Content-Length": str(length)}
    )
    assert answer.status_code == 200, answer.text
    size = int(answer.headers["inference-header-content-length"])
    result = triton.InferenceServerClient.parse_response_body(answer.content, header_length=size)
    texts = result.as_numpy("probabilities")
    assert texts is not None
    assert texts.shape == (1, 3)
    values = [text.decode().split(":") for text in texts[0]]
    assert [float(value) for value, _, _ in values] == sorted((float(value) for value, _, _ in values), reverse=True)
    assert [label for _, _, label in values] == [toys.DIGIT_CLASSES[int(index)] for _, index, _ in values]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"classification": -1}, "outputs[0]: classification"),
        ({"classification": "3"}, "outputs[0]: classification"),
        ({"classification": True}, "outputs[0]: classification"),
        ({"classification": 10**9}, "outputs[0]: classification"),
        (
            {"classification": 1, "shared_memory_region": "r", "shared_memory_byte_size": 8},
            "output 'SUM': classification or shared_memory_region",
        ),
    ],
)
async def test_impossible_classification_parameters_are_refused_by_name(
    stand: Stand, parameters: Any, words: str
) -> None:
    """400, with the output and the parameter."""
    answer = await stand.client("harbour").post(PATH, json=summed(ROWS, {"name": "SUM", "parameters": parameters}))
    assert answer.status_code == 400
    assert words in answer.json()["error"]


async def test_classification_extension_is_in_the_server_metadata(stand: Stand) -> None:
    """Clients look for it there."""
    assert "classification" in (await stand.client(None).get("/v2")).json()["extensions"]


async def test_batch_above_the_largest_measured_is_refused(stand: Stand) -> None:
    """What the configuration calls the largest batch is answered, one more is 400."""
    client = stand.client("harbour")
    for model in ("adding", "digits"):
        largest = (await client.get(f"/v2/models/{model}/config")).json()["max_batch_size"]
        statuses = []
        for items in (largest, largest + 1):
            if model == "adding":
                request = summed([[0.0] * 4] * items)
            else:
                data = [0.0] * (64 * items)
                image = {"name": "image", "shape": [items, 1, 8, 8], "datatype": "FP32", "data": data}
                request = {"inputs": [image]}
            statuses.append((await client.post(f"/v2/models/{model}/infer", json=request)).status_code)
        assert statuses == [200, 400], (model, largest)
