"""Networks that run on certain values only, imported through a box: a calibration input shows the values."""

import io
import json
import zipfile

import onnx.parser
import pytest

from tests.api.stand import Stand, good, imported

pytestmark = pytest.mark.anyio
SPLIT = """<ir_version: 8, opset_import: ["" : 17]>
split (float[N, 6] x, int64[2] parts) => (float[N, A] y, float[N, B] z) { y, z = Split<axis=1>(x, parts) }"""
SAMPLE = {"x": [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], "parts": [2, 4]}


async def test_network_with_a_calibration_sample_is_imported_and_serves(stand: Stand) -> None:
    sample = io.BytesIO()
    with zipfile.ZipFile(sample, "w") as archive:
        archive.writestr("0.json", json.dumps({"inputs": SAMPLE}))
    network = onnx.parser.parse_model(SPLIT).SerializeToString()
    ended = await imported(stand.client("museum"), "split", network, calibration=sample.getvalue())
    assert ended["state"] == "done", ended
    inputs = {"x": SAMPLE["x"], "parts": [5, 1]}
    answer = await good(stand.client("museum").post("/v1/applications/split/predict", json={"inputs": inputs}))
    assert answer["outputs"]["z"]["data"] == [6.0]
