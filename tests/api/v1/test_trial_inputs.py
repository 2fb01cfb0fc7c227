"""Networks that run on certain values only, imported through a box: a calibration input shows the values."""

import io
import json
import zipfile

import onnx.parser
import pytest

from tests.api.stand import Stand, job_end

pytestmark = pytest.mark.anyio
SPLIT = """<ir_version: 8, opset_import: ["" : 17]>
split (float[N, 6] x, int64[2] parts) => (float[N, A] y, float[N, B] z) { y, z = Split<axis=1>(x, parts) }"""
SAMPLE = {"x": [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], "parts": [2, 4]}


def packed(*samples: object) -> bytes:
    """A zip of calibration inputs."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for number, sample in enumerate(samples):
            archive.writestr(f"{number}.json", json.dumps({"inputs": sample}))
    return target.getvalue()


async def imported(stand: Stand, **files: bytes) -> dict[str, object]:
    parts = {"file": onnx.parser.parse_model(SPLIT).SerializeToString(), **files}
    client = stand.client("museum")
    job = await client.post("/v1/models", data={"name": "split", "task": "tensor"}, files=parts)
    assert job.status_code == 202, job.text
    return await job_end(client, job.json()["id"])


async def test_network_without_fitting_trial_values_is_refused_with_advice(stand: Stand) -> None:
    ended = await imported(stand)
    assert ended["state"] == "failed"
    assert "add inputs of real use (calibration/)" in str(ended["error"])


async def test_network_with_a_calibration_sample_is_imported_and_serves(stand: Stand) -> None:
    ended = await imported(stand, calibration=packed(SAMPLE))
    assert ended["state"] == "done", ended
    inputs = {"x": SAMPLE["x"], "parts": [5, 1]}
    answer = await stand.client("museum").post("/v1/applications/split/predict", json={"inputs": inputs})
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"]["z"]["data"] == [6.0]
