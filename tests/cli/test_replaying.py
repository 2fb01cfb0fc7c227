"""What a replay sends and reads: inputs of the right shape, equal for equal seeds, and the header with the timing."""

import json
from random import Random

from appliance.cli.replaying import infer_body, read_timing

INPUTS = [
    {"name": "picture", "datatype": "FP32", "shape": [-1, 3, -1, -1]},
    {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]},
    {"name": "token_type_ids", "datatype": "INT64", "shape": [1, 4]},
    {"name": "words", "datatype": "BYTES", "shape": [2]},
]


def test_inputs_have_the_shapes_of_the_metadata() -> None:
    """Free axes: one row, the preferred picture, a usual length; the lengths announced are the bytes that follow."""
    body, length = infer_body(INPUTS, Random(1), (48, 320))
    described = json.loads(body[:length])["inputs"]
    assert [one["shape"] for one in described] == [[1, 3, 48, 320], [1, 128], [1, 4], [2]]
    assert [one["parameters"]["binary_data_size"] for one in described] == [3 * 48 * 320 * 4, 128 * 8, 32, 16]
    assert len(body) == length + sum(one["parameters"]["binary_data_size"] for one in described)
    assert body.endswith(b"\x04\x00\x00\x00text" * 2)


def test_the_seed_decides_the_values() -> None:
    assert infer_body(INPUTS, Random(1)) == infer_body(INPUTS, Random(1))
    assert infer_body(INPUTS, Random(1)) != infer_body(INPUTS, Random(2))


def test_the_timing_header_is_read() -> None:
    """Marks without a duration count 0 and are there; no header, no timing."""
    assert read_timing("cold, queue;dur=0.125, load;dur=80.000, compute;dur=3") == {
        "cold": 0.0,
        "queue": 0.125,
        "load": 80.0,
        "compute": 3.0,
    }
    assert read_timing("") == {}
