"""Models that are honest at import and hurt whoever runs them on the right input, and a tokenizer that does."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from tokenizers import Tokenizer, normalizers
from tokenizers.models import WordLevel

from tests.modelstore import networks
from tests.modelstore.networks import INT64

INT32_MIN = -(2**31)


def integer_division(path: Path) -> Path:
    """`Div` of INT_MIN by -1 traps (SIGFPE)."""
    types = dict.fromkeys("XYZ", int(onnx.TensorProto.INT32))
    return _written(path, "Z = Div(X, Y)", {"X": [1], "Y": [1]}, {"Z": [1]}, types=types)


def lstm(path: Path) -> Path:
    """An empty batch ends the process (`terminate called`)."""
    rng = np.random.default_rng(0)
    weights = {name: rng.random((1, 16, width), np.float32) for name, width in (("W", 3), ("R", 4))}
    inputs, outputs = {"X": ["steps", "batch", 3]}, {"Y": ["steps", 1, "batch", 4]}
    return _written(path, "Y = LSTM<hidden_size=4>(X, W, R)", inputs, outputs, weights)


def outer_product(path: Path) -> Path:
    """180 kB of input become gigabytes."""
    nodes = "T = Transpose(X) P = Mul(X, T) Y = ReduceSum<keepdims=0>(P)"
    return _written(path, nodes, {"X": ["n", 1]}, {"Y": []})


def loop(path: Path) -> Path:
    """Runs as often as its input says."""
    nodes = (
        "n = Reshape(N, shape) Y = Loop(n, always, start) <body = body (int64 i, bool c_in, float a_in) "
        "=> (bool c_out, float a_out) { a_out = Add(a_in, one) c_out = Identity(c_in) }>"
    )
    weights = {
        "one": np.array(1, np.float32),
        "always": np.array(True),
        "start": np.array(0, np.float32),
        "shape": np.zeros(0, np.int64),
    }
    return _written(path, nodes, {"N": [1]}, {"Y": []}, weights, types={"N": INT64})


def long_node(path: Path) -> Path:
    """Many seconds in a single node, where the runtime's flag is not looked at: a product of integer matrices of the
    shape that is asked for.
    """
    nodes = "A = ConstantOfShape<value = int64[1] {1}>(S) P = MatMul(A, A) Y = ReduceSum<keepdims=0>(P)"
    return _written(path, nodes, {"S": [2]}, {"Y": []}, types={"S": INT64, "Y": INT64})


def words(path: Path) -> Path:
    """An honest network over tokens, for whatever tokenizer: each token's number is its vector."""
    nodes = "numbers = Cast<to=1>(input_ids) Y = Unsqueeze(numbers, axes)"
    inputs, outputs = {"input_ids": ["batch", "length"]}, {"Y": ["batch", "length", 1]}
    return _written(path, nodes, inputs, outputs, {"axes": np.array([2])}, types={"input_ids": INT64})


def tokenizer(path: Path) -> Path:
    """Replace rules that grow: two letters become 10^8 each rule, in theory."""
    made = Tokenizer(WordLevel({"[UNK]": 0, "hello": 1}, unk_token="[UNK]"))
    made.normalizer = normalizers.Sequence([normalizers.Replace("a", "a" * 10)] * 8)
    made.save(str(path))
    return path


def _written(path: Path, *network: Any, **more: Any) -> Path:
    return Path(networks.write(networks.model(*network, **more), path.parent, path.name))
