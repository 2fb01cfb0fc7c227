"""Inputs with a default: a request leaves them out or gives them, and both are answered right."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.api.stand import Stand, good, imported

pytestmark = pytest.mark.anyio
ROWS = np.random.default_rng(2).standard_normal((2, 64)).astype(np.float32)
WEIGHTS = np.random.default_rng(3).standard_normal((64, 256)).astype(np.float32)


def scaled() -> bytes:
    """`y` = `x` times a matrix times `scale`, which is 2 where nothing else is said; `unused` has no
    bound.
    """
    names: dict[str, list[int | str]] = {"x": ["n", 64], "scale": [1], "unused": []}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in names.items()]
    stored = [
        numpy_helper.from_array(WEIGHTS, "w"),
        numpy_helper.from_array(np.array([2], np.float32), "scale"),
        numpy_helper.from_array(np.array(np.inf, np.float32), "unused"),
    ]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Mul", ["p", "scale"], ["y"])]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 256])
    graph = helper.make_graph(nodes, "scaled", inputs, [output], stored)
    made: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def described(name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.ravel().tolist()}


async def inferred(client: httpx.AsyncClient, version: str = "", **more: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The answer for `ROWS` and further inputs."""
    inputs = [described(name, array) for name, array in {"x": ROWS, **more}.items()]
    answer = await good(client.post(f"/v2/models/scaled{version}/infer", json={"inputs": inputs}))
    output = answer["outputs"][0]
    return np.array(output["data"]).reshape(output["shape"])


async def predicted(client: httpx.AsyncClient, inputs: Mapping[str, Any]) -> httpx.Response:
    return await client.post("/v1/applications/scaled/predict", json={"inputs": inputs})


async def test_optional_input_given_or_left_out_changes_answer(stand: Stand) -> None:
    museum = stand.client("museum")
    job = await imported(museum, "scaled", scaled())
    assert job["state"] == "done", job["error"]

    variants = {one["name"]: one for one in (await museum.get("/v1/models/scaled")).json()["variants"]}
    assert variants["int8"]["state"] != "failed", variants["int8"]["reason"]
    for shown in variants.values():
        if shown["state"] != "failed":  # fp16 gains nothing here
            optional = {one["name"]: one["optional"] for one in shown["inputs"]}
            assert optional == {"x": False, "scale": True, "unused": True}
    listed = (await museum.get("/v2/models/scaled")).json()["inputs"]
    assert {one["name"] for one in listed} == {"x", "scale", "unused"}
    config = (await museum.get("/v2/models/scaled/config")).json()["input"]
    assert {one["name"] for one in config if one.get("optional")} == {"scale", "unused"}

    three, seven = np.array([3], np.float32), np.array(7, np.float32)
    np.testing.assert_allclose(await inferred(museum), 2 * ROWS @ WEIGHTS, rtol=1e-4, atol=1e-4)
    for version in ("", "/versions/int8"):
        plain = await inferred(museum, version)
        np.testing.assert_allclose(await inferred(museum, version, scale=three), plain * 1.5, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(await inferred(museum, version, unused=seven), plain, rtol=1e-5)

    once = await predicted(museum, {"x": ROWS.tolist()})
    more = await predicted(museum, {"x": ROWS.tolist(), "scale": [3.0]})
    assert (once.status_code, more.status_code) == (200, 200), more.text
    values = [np.array(one.json()["outputs"]["y"]["data"]) for one in (once, more)]
    np.testing.assert_allclose(values[1], values[0] * 1.5, rtol=1e-4, atol=1e-4)
    wrong = await predicted(museum, {"x": ROWS.tolist(), "scales": [3.0]})
    assert wrong.status_code == 422
    assert "takes the inputs ['x'] (optional: ['scale', 'unused']), not ['scales', 'x']" in wrong.json()["detail"]


async def test_concurrent_requests_keep_their_own_optional_inputs(stand: Stand) -> None:
    """Some give the input, some leave it out, and others give another value."""
    museum = stand.client("museum")
    assert (await imported(museum, "scaled", scaled(), metadata={"precisions": []}))["state"] == "done"
    scales = [None, 3.0, None, 5.0] * 8
    given: list[Any] = [{} if one is None else {"scale": np.array([one], np.float32)} for one in scales]
    for scale, answer in zip(scales, await asyncio.gather(*(inferred(museum, **one) for one in given)), strict=True):
        np.testing.assert_allclose(answer, (scale or 2.0) * ROWS @ WEIGHTS, rtol=1e-4, atol=1e-4)
