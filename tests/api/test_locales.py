"""Networks that normalise texts run wherever a box runs them: in the children of an import, and in the service."""

import pytest
from onnx import TensorProto, helper

from tests.api.stand import Stand, imported

pytestmark = pytest.mark.anyio


async def test_text_normaliser_without_stated_locale_serves(stand: Stand) -> None:
    """A locale left out is en_US, which few machines have."""
    node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER")
    sides = [[helper.make_tensor_value_info(name, TensorProto.STRING, ["n"])] for name in "xy"]
    graph = helper.make_graph([node], "lower", sides[0], sides[1])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    museum = stand.client("museum")
    job = await imported(museum, "lower", model.SerializeToString(), metadata={"precisions": []})
    assert job["state"] == "done", job["error"]
    tensor = {"name": "x", "datatype": "BYTES", "shape": [2], "data": ["Äpfel", "ЖЩ"]}
    answer = await museum.post("/v2/models/lower/infer", json={"inputs": [tensor]})
    assert answer.json()["outputs"][0]["data"] == ["äpfel", "жщ"]
