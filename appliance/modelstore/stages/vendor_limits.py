"""What kinds of processors take by their vendors' documents, for kinds that are not there to be asked.

Source of `dla`: NVIDIA, "DLA Supported Layers and Restrictions". What a document leaves open counts as not taken; a
quantizing node goes with its operator. Only what is in a graph is asked: number formats are chosen when it is built.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import NodeProto

Shape = tuple[int, ...] | None
"""-1 where a size is not known; None: nothing is."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A node with what is known of its tensors. `constants`: which inputs are."""

    node: NodeProto
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]
    constants: Sequence[bool]

    def attribute(self, name: str, default: Any) -> Any:
        found = next((one for one in self.node.attribute if one.name == name), None)
        return default if found is None else onnx.helper.get_attribute_value(found)


def takes(kind: str, asked: Asked) -> bool:
    """Whether a kind takes a node. Raises: KeyError where there is no table of it."""
    table = TABLES[kind]
    if asked.node.domain not in ("", "ai.onnx") or asked.node.op_type not in table:
        return False
    given = [shape for shape, is_constant in zip(asked.inputs, asked.constants, strict=True) if not is_constant]
    shapes = [shape for shape in (*given, *asked.outputs) if shape]
    return all(_fits(shape) for shape in shapes) and table[asked.node.op_type](asked)


_BATCH_MAX, _SIZE_MAX = 4096, 8192
_WINDOW_MAX = 8


def _fits(shape: Sequence[int]) -> bool:
    return shape[0] <= _BATCH_MAX and all(size <= _SIZE_MAX for size in shape[1:])


def _always(asked: Asked) -> bool:
    return True


def _planes(asked: Asked) -> bool:
    """Whether it works on feature maps: batch, channels, height, width."""
    return asked.inputs[0] is not None and len(asked.inputs[0]) == 4


def _convolution(asked: Asked) -> bool:
    return (
        _planes(asked)
        and all(asked.constants[1:])
        and all(size <= 32 for size in asked.attribute("kernel_shape", ()))
        and all(step <= 8 for step in asked.attribute("strides", ()))
        and all(step <= 32 for step in asked.attribute("dilations", ()))
        and all(pad <= 31 for pad in asked.attribute("pads", ()))
    )


def _deconvolution(asked: Asked) -> bool:
    """Neither padding, groups nor dilation."""
    return (
        _convolution(asked)
        and not any(asked.attribute("pads", ()))
        and asked.attribute("group", 1) == 1
        and all(step == 1 for step in asked.attribute("dilations", ()))
    )


def _pooling(asked: Asked) -> bool:
    return (
        _planes(asked)
        and all(size <= _WINDOW_MAX for size in asked.attribute("kernel_shape", ()))
        and all(step <= 16 for step in asked.attribute("strides", ()))
        and all(pad <= 7 for pad in asked.attribute("pads", ()))
        and all(step == 1 for step in asked.attribute("dilations", ()))
    )


def _global_pooling(asked: Asked) -> bool:
    """Its window is the whole plane."""
    return _planes(asked) and all(0 < size <= _WINDOW_MAX for size in (asked.inputs[0] or ())[2:])


def _elementwise(asked: Asked) -> bool:
    """Of feature maps, or of one and constants."""
    shapes = [shape for shape, is_constant in zip(asked.inputs, asked.constants, strict=True) if not is_constant]
    return all(shape is not None and len(shape) == 4 for shape in shapes)


def _concatenation(asked: Asked) -> bool:
    return _planes(asked) and asked.attribute("axis", 0) in (1, -3)


def _resizing(asked: Asked) -> bool:
    return _planes(asked) and asked.attribute("mode", b"nearest") in (b"nearest", b"linear")


def _clipping(asked: Asked) -> bool:
    return _planes(asked) and all(asked.constants[1:])


_DLA: Mapping[str, Callable[[Asked], bool]] = {
    "Add": _elementwise,
    "AveragePool": _pooling,
    "BatchNormalization": _planes,
    "Clip": _clipping,
    "Concat": _concatenation,
    "Conv": _convolution,
    "ConvTranspose": _deconvolution,
    "DequantizeLinear": _always,
    "Div": _elementwise,
    "GlobalAveragePool": _global_pooling,
    "GlobalMaxPool": _global_pooling,
    "LeakyRelu": _planes,
    "Max": _elementwise,
    "MaxPool": _pooling,
    "Min": _elementwise,
    "Mul": _elementwise,
    "PRelu": _clipping,
    "QuantizeLinear": _always,
    "Relu": _planes,
    "Resize": _resizing,
    "Sigmoid": _planes,
    "Sub": _elementwise,
    "Tanh": _planes,
}
TABLES: Mapping[str, Mapping[str, Callable[[Asked], bool]]] = {"dla": _DLA}
"""Kind → operator → what it must keep, beside the largest sizes."""
