"""Changes that some models need before they are good uploads: free sizes, a newer opset, dead weights dropped.

Each function takes the carrier's file and returns a model that computes the same function.
"""

from pathlib import Path

import onnx
from onnx import version_converter

from appliance.demo.zoo import graphs


def centerface(source: Path) -> onnx.ModelProto:
    """CenterFace with free batch, height and width (sides multiple of 32); maps `heat`, `scale`, `offset`, `landmarks`
    at stride 4.

    The file declares 10x3x32x32 but is fully convolutional, lists weights among its inputs and carries unused counters.
    """
    model = _without_dead_weights(onnx.load(source))
    for value, name in zip(list(model.graph.output), ("heat", "scale", "offset", "landmarks"), strict=True):
        _rename(model.graph, value.name, name)
        graphs.free_dimensions(value, {0: "N", 2: "rows", 3: "columns"})
    _rename(model.graph, model.graph.input[0].name, "image")
    graphs.free_dimensions(model.graph.input[0], {0: "N", 2: "H", 3: "W"})
    return graphs.tidied(newer(model))


def newer(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raise an older opset to the zoo's, which per-channel quantisation needs; metadata (an OCR dictionary) stays."""
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    model.ir_version = graphs.IR_VERSION
    if opset >= graphs.OPSET:
        return model
    converted = version_converter.convert_version(model, graphs.OPSET)
    converted.ir_version = graphs.IR_VERSION
    onnx.helper.set_model_props(converted, {entry.key: entry.value for entry in model.metadata_props})
    return converted


def _without_dead_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Drop initialisers that nothing reads, and all of them from the list of inputs."""
    graph = model.graph
    used = {value for node in graph.node for value in node.input}
    weights = {tensor.name for tensor in graph.initializer}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.extend(inputs)
    return model


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Give a value another name wherever it is mentioned."""
    for node in graph.node:
        for values in (node.input, node.output):
            for index, value in enumerate(values):
                if value == old:
                    values[index] = new
    for side in (*graph.input, *graph.output, *graph.value_info):
        if side.name == old:
            side.name = new
