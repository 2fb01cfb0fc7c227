"""What a replay sends and reads: inputs of the right shape, equal for equal seeds, sequences, and the header with
the timing.
"""

import json
from random import Random

import httpx

from appliance.cli.replay import left_out
from appliance.cli.replay_inputs import IDLE_NS_MAX, SEQUENCE_LENGTH, Feed, Sizes, Streams, feed_of
from appliance.cli.replaying import read_timing, told_by
from appliance.domain.catalogue import Precision, Variant
from appliance.lab.scenario import parse_scenario
from appliance.wire.catalogue import ModelShape, TensorShape, VariantShape
from tests.lab.pipelines.streamed import CAMERA
from tests.lab.pipelines.streamed import document as streamed
from tests.lab.scenarios import document

INPUTS = [
    {"name": "picture", "datatype": "FP32", "shape": [-1, 3, -1, -1]},
    {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]},
    {"name": "token_type_ids", "datatype": "INT64", "shape": [1, 4]},
    {"name": "words", "datatype": "BYTES", "shape": [2]},
]


def test_replay_inputs_have_the_shapes_of_the_metadata() -> None:
    """Free axes: one row, the preferred picture, a usual length; the lengths announced are the bytes that follow."""
    body, length = Feed(INPUTS, Random(1), Sizes(48, 320)).body()
    described = json.loads(body[:length])["inputs"]
    assert [one["shape"] for one in described] == [[1, 3, 48, 320], [1, 128], [1, 4], [2]]
    assert [one["parameters"]["binary_data_size"] for one in described] == [3 * 48 * 320 * 4, 128 * 8, 32, 16]
    assert len(body) == length + sum(one["parameters"]["binary_data_size"] for one in described)
    assert body.endswith(b"\x04\x00\x00\x00text" * 2)


def test_replay_inputs_depend_on_the_seed_only() -> None:
    assert Feed(INPUTS, Random(1)).body() == Feed(INPUTS, Random(1)).body()
    assert Feed(INPUTS, Random(1)).body() != Feed(INPUTS, Random(2)).body()


def _silero() -> ModelShape:
    """The shape of a stateful network for voices, as the box tells it."""
    state = [{"input": "state", "output": "stateN", "shape": [2, 1, 128], "datatype": "FP32"}]
    params = {"sample_rate_hz": 16000, "chunk_samples": 512, "context_samples": 64}
    task = {"kind": "voice-activity", "labels": [], "image": None, "decoder": "", "params": params, "state": state}
    whole = {"name": "speech", "tenant": "t", "shared": False, "task": task | {"constants": {"sr": 16000}}}
    return ModelShape.model_validate(whole | {"state": "ready", "variants": []})


def test_replay_leaves_out_constants_and_state_of_the_model() -> None:
    """No made-up rate, no noise for a state; a chunk is as long as the task says."""
    inputs: list[dict[str, object]] = [
        {"name": "input", "datatype": "FP32", "shape": [-1, -1]},
        {"name": "state", "datatype": "FP32", "shape": [2, -1, 128]},
        {"name": "sr", "datatype": "INT64", "shape": []},
    ]
    body, length = feed_of(inputs, _silero(), Random(1)).body({"sequence_id": "a"})
    head = json.loads(body[:length])
    assert [(one["name"], one["shape"]) for one in head["inputs"]] == [("input", [1, 576])]
    assert head["parameters"] == {"binary_data_output": True, "sequence_id": "a"}


def test_replay_leaves_out_optional_inputs() -> None:
    """The default is what the model was made with; noise might mean anything."""
    shown = [TensorShape(name=name, datatype="FP32", shape=(1,), optional=name == "scale") for name in ("x", "scale")]
    variant = VariantShape.model_validate(Variant("t/m:v", "t/m", "v", Precision.OWN, "0" * 64, 1, (), ()))
    model = _silero().model_copy(update={"variants": [variant.model_copy(update={"inputs": shown})]})
    body, length = feed_of([one.model_dump() for one in shown], model, Random(1)).body()
    assert [one["name"] for one in json.loads(body[:length])["inputs"]] == ["x"]


def test_replay_sequence_continues_only_after_an_answer() -> None:
    """Start, middle and end in order; requests in flight together are of different sequences; a refused sequence is not
    continued.
    """
    streams, seen = Streams(), []
    for _ in range(SEQUENCE_LENGTH + 1):
        stream, told = streams.take(0)
        seen.append((told["sequence_id"], told["sequence_start"], told["sequence_end"]))
        streams.give(stream, 0, answered=True)
    first = seen[0][0]
    assert seen[0] == (first, True, False)
    assert seen[1:-2] == [(first, False, False)] * (SEQUENCE_LENGTH - 2)
    assert seen[-2] == (first, False, True)
    assert seen[-1][0] != first
    assert seen[-1][1]

    (one, _), (other, _) = streams.take(0), streams.take(0)
    assert one.id != other.id
    streams.give(one, 0, answered=False)
    streams.give(other, 0, answered=True)
    assert streams.take(0)[0] is other
    streams.give(other, 0, answered=True)
    assert streams.take(IDLE_NS_MAX)[0] is not other


def test_replay_error_is_told_by_problem_type_or_http_status() -> None:
    """The answer of the box by its header, the answer of another program by its status."""
    of_the_box = httpx.Response(429, headers={"Problem-Type": "/problems/queue-full"}, json={"error": "256 wait"})
    assert told_by(of_the_box) == ("queue-full", "256 wait")
    assert told_by(httpx.Response(502, text="Bad Gateway")) == ("HTTP 502", "Bad Gateway")


def test_server_timing_header_is_read() -> None:
    """Marks without a duration count 0 and are there; no header, no timing."""
    assert read_timing("cold, queue;dur=0.125, load;dur=80.000, compute;dur=3") == {
        "cold": 0.0,
        "queue": 0.125,
        "load": 80.0,
        "compute": 3.0,
    }
    assert read_timing("") == {}


def test_replay_names_the_pipelines_and_devices_left_out() -> None:
    """Pipelines and devices send pictures, of which a scenario has none."""
    assert left_out(parse_scenario(document())) == []
    assert left_out(parse_scenario(streamed(CAMERA))) == ["pipelines (signs)", "devices (camera)"]
