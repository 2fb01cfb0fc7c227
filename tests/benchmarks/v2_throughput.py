"""`/v2` infer of a tiny model with binary tensors over 16 connections, against a bare Starlette route that returns a body of the same size.

Asked: at least 0.6 of the bare route's requests per second. Rounds alternate; the median ratio counts.
"""

import statistics
import tempfile
from pathlib import Path

import numpy as np

from appliance.zoo import toys
from tests.benchmarks import _subjects as subjects

ROUNDS, SECONDS, CONNECTIONS = 5, 3.0, 16


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder, subjects.box() as box:
        model = toys.tiny_add(Path(folder) / "tiny.onnx")
        subjects.await_job(box, subjects.upload(box, "tiny", model))
        with box.http() as http:
            inputs = http.get("/v2/models/tiny").json()["inputs"]
        arrays = {i["name"]: np.zeros([max(1, d) for d in i["shape"]], np.float32) for i in inputs}
        request = subjects.infer_request("tiny", box.key, arrays)
        body, headers = subjects.infer_body(arrays)
        with box.http() as http:
            answer = http.post("/v2/models/tiny/infer", content=body, headers=headers).raise_for_status()
        with subjects.bare_starlette(subjects.free_port(), len(answer.content)) as bare:
            rates = [(_rate(box.port, request), _rate(bare, request)) for _ in range(ROUNDS)]
    for ours, theirs in rates:
        print(f"box {ours:8.0f}/s   bare Starlette {theirs:8.0f}/s   ratio {ours / theirs:.2f}")
    median = statistics.median(ours / theirs for ours, theirs in rates)
    print(f"median ratio {median:.2f} (asked ≥ 0.60)")


def _rate(port: int, request: bytes) -> float:
    result = subjects.drive(port, [request], CONNECTIONS, SECONDS)
    assert result["errors"] == 0, result
    return float(result["count"] / result["seconds"])


if __name__ == "__main__":
    main()
