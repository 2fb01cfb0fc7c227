"""Small ONNX graphs for the tests of this package, with real weights from a seed, and ways to make them hostile."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def nodes_of(text: str) -> list[NodeProto]:
    """Nodes as they are written: `b = Relu(a) y = Concat<axis=1>(a, b)`."""
    return list(onnx.parser.parse_graph(f"g () => () {{ {text} }}").node)


def model(
    nodes: str | Sequence[NodeProto],
    inputs: dict[str, Sequence[int | str]],
    outputs: dict[str, Sequence[int | str]],
    weights: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    ir: int = 8,
    types: dict[str, int] | None = None,
    metadata: dict[str, str] | None = None,
) -> ModelProto:
    """A model of nodes or their text; tensors are float32 where `types` does not say otherwise, strings in shapes are
    free dimensions. Operators of other domains are of version 1.
    """
    kinds = types or {}
    values = [
        [helper.make_tensor_value_info(name, kinds.get(name, FLOAT), shape) for name, shape in side.items()]
        for side in (inputs, outputs)
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    listed = nodes_of(nodes) if isinstance(nodes, str) else list(nodes)
    graph = helper.make_graph(listed, "g", values[0], values[1], stored)
    imports = {"": opset} | {node.domain: 1 for node in listed if node.domain}
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in imports.items()], ir_version=ir)
    helper.set_model_props(made, metadata or {})
    return made


def parsed(inputs: str, body: str, constants: str = "", output: str = "float[N] y", opset: int = 17) -> ModelProto:
    """A model as it is written: inputs `float[N,4] x`, nodes as `nodes_of` has them, constants `int64[2] s = {1,2}`."""
    kept = f"<{constants}>" if constants else ""
    graph = f"g ({inputs}) => ({output}) {kept} {{ {body} }}"
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {graph}')


def write(made: ModelProto, folder: Path, name: str = "upload.onnx") -> str:
    """The path of the written file."""
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return str(path)


def relu(shape: Sequence[int | str] = ("n", 4), **more: Any) -> ModelProto:
    """One node, no weights."""
    return model("y = Relu(x)", {"x": shape}, {"y": shape}, **more)


def classifier(opset: int = 17, classes: int = 5, seed: int = 0) -> ModelProto:
    """A convolution net with free batch, height and width: two convolutions, a depthwise one, a mean over the
    picture, a Gemm.
    """
    rng = np.random.default_rng(seed)

    def random(*shape: int) -> np.ndarray:
        return np.asarray(rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.float32)

    weights = {
        "w1": random(16, 3, 3, 3),
        "b1": random(16) / 10,
        "wd": random(16, 1, 3, 3),
        "w2": random(64, 16, 3, 3),
        "w3": random(64, 64, 3, 3),
        "wf": random(classes, 64),
        "bf": random(classes),
    }
    pads = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], strides=[2, 2], pads=pads),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "wd"], ["cd"], group=16, pads=pads),
        helper.make_node("Conv", ["cd", "w2"], ["c2"], strides=[2, 2], pads=pads),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], pads=pads),
        helper.make_node("GlobalAveragePool", ["c3"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "wf", "bf"], ["y"], transB=1),
    ]
    shape = ("n", 3, "h", "w")
    return model(nodes, {"x": shape}, {"y": ("n", classes)}, weights, opset=opset, metadata={"classes": "a,b,c"})


def attention(width: int = 64, seed: int = 0) -> ModelProto:
    """One attention layer over token ids [n, l]: an embedding table, three projections, a Softmax."""
    rng = np.random.default_rng(seed)
    weights = {
        name: (rng.standard_normal(shape) / 8).astype(np.float32)
        for name, shape in {
            "table": (2000, width),
            "wq": (width, width),
            "wk": (width, width),
            "wv": (width, width),
        }.items()
    }
    nodes = (
        "e = Gather(table, input_ids) q = MatMul(e, wq) k = MatMul(e, wk) v = MatMul(e, wv) "
        "kt = Transpose<perm=[0, 2, 1]>(k) s = MatMul(q, kt) a = Softmax<axis=-1>(s) y = MatMul(a, v)"
    )
    return model(nodes, {"input_ids": ("n", "l")}, {"y": ("n", "l", width)}, weights, types={"input_ids": INT64})


def endless() -> ModelProto:
    """A Loop that counts for ever."""
    nodes = (
        "y = Loop(trips, go, x) <body = body (int64 i, bool c, float[n,4] v) => (bool c_out, float[n,4] v_out) "
        "{ c_out = Identity(c) v_out = Add(v, v) }>"
    )
    weights = {"trips": np.array(2**62, np.int64), "go": np.array(True)}
    return model(nodes, {"x": ("n", 4)}, {"y": ("n", 4)}, weights)


def nested(levels: int) -> ModelProto:
    """If within If, `levels` deep."""
    inner: list[NodeProto] = [helper.make_node("Relu", ["x"], ["y0"])]
    for level in range(levels):
        out = helper.make_tensor_value_info(f"y{level}", FLOAT, None)
        then = helper.make_graph(inner, f"then{level}", [], [out])
        other = helper.make_graph(
            [helper.make_node("Relu", ["x"], [f"z{level}"])],
            f"else{level}",
            [],
            [helper.make_tensor_value_info(f"z{level}", FLOAT, None)],
        )
        inner = [helper.make_node("If", ["yes"], [f"y{level + 1}"], then_branch=then, else_branch=other)]
    return model(inner, {"x": ("n", 4)}, {f"y{levels}": ("n", 4)}, {"yes": np.array(True)})


def nested_bytes(levels: int) -> bytes:
    """The wire form of subgraphs so deep that the protobuf library would not write them."""

    def field(number: int, payload: bytes) -> bytes:
        size, length = b"", len(payload)
        while length > 127:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        return bytes([number << 3 | 2]) + size + bytes([length]) + payload

    graph = b""
    for _ in range(levels):
        graph = field(1, field(5, field(6, graph)))  # a node with an attribute with a graph
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11")


def with_external(made: ModelProto, tensor: str, location: str, **entries: int) -> ModelProto:
    """The model with one tensor's data declared to lie elsewhere."""
    for stored in made.graph.initializer:
        if stored.name == tensor:
            stored.ClearField("raw_data")
            stored.data_location = TensorProto.EXTERNAL
            for key, value in {"location": location, **entries}.items():
                entry = stored.external_data.add()
                entry.key, entry.value = key, str(value)
    return made


def run(path: str, **inputs: np.ndarray) -> list[np.ndarray]:
    """What ONNX Runtime computes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def load(path: str) -> ModelProto:
    """The model with its weights."""
    return onnx.load(path)


def normalised() -> ModelProto:
    """Convolutions with local response normalisation, which OpenVINO runs several times as fast as ONNX Runtime, then
    an average of integers, which it does not know.
    """
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "s": np.array(1 / 64, np.float32),
        "z": np.array(128, np.uint8),
        "k": (rng.standard_normal((32, 3, 3, 3)) / 5).astype(np.float32),
        "v": (rng.standard_normal((32, 4)) / 4).astype(np.float32),
    }
    nodes = (
        "a = Conv<pads=[1, 1, 1, 1]>(x, k) b = LRN<size=5>(a) c = LRN<size=3>(b) "
        "d = QuantizeLinear(c, s, z) e = com.microsoft.QLinearGlobalAveragePool(d, s, z, s, z) "
        "f = DequantizeLinear(e, s, z) g = Flatten(f) y = MatMul(g, v)"
    )
    return model(nodes, {"x": ("n", 3, 64, 64)}, {"y": ("n", 4)}, weights)
