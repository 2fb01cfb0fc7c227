"""Rewrites a graph so that fewer operators stand in the way of other kinds of processors. Runs in a child process.

What comes out computes the same, bit for bit: `Sum` becomes `Add`, which accelerators know, and each reader of a
dequantized tensor gets a `DequantizeLinear` of its own, so that what passes between two parts is the quantized tensor.
"""

from onnx import GraphProto, ModelProto, NodeProto, helper

from appliance.modelstore.stages import normalise

DEQUANTIZE, QUANTIZE = "DequantizeLinear", "QuantizeLinear"


def rewrite(model: ModelProto) -> None:
    """In place, of the outer graph; names of nodes stay unique."""
    _sums(model.graph)
    _dequantized(model.graph)
    normalise.tidy(model)


def _sums(graph: GraphProto) -> None:
    """Of two and more: from the left, as ONNX Runtime adds them up."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type != "Sum" or node.domain not in ("", "ai.onnx") or len(node.input) < 2:
            nodes.append(node)
            continue
        total = node.input[0]
        for place, term in enumerate(node.input[1:], 1):
            is_last = place == len(node.input) - 1
            result = node.output[0] if is_last else f"{node.output[0]}/sum{place}"
            nodes.append(helper.make_node("Add", [total, term], [result], f"{node.name}/add{place}"))
            total = result
    del graph.node[:]
    graph.node.extend(nodes)


def _dequantized(graph: GraphProto) -> None:
    """The first reader keeps the node that is there; the graph's outputs are no readers."""
    outputs = {value.name for value in graph.output}
    made = {node.output[0]: node for node in graph.node if node.op_type == DEQUANTIZE}
    taken: set[str] = set()
    nodes: list[NodeProto] = []
    for node in graph.node:
        for place, name in enumerate(node.input):
            origin = made.get(name)
            if origin is None:
                continue
            if name in taken or name in outputs:
                copy = NodeProto()
                copy.CopyFrom(origin)
                copy.name, copy.output[0] = f"{origin.name}/{node.name}.{place}", f"{name}/{node.name}.{place}"
                nodes.append(copy)
                node.input[place] = copy.output[0]
            taken.add(name)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
