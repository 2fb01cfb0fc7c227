"""EfficientNet-lite as ONNX, built node by node from a PyTorch checkpoint; batch norms are folded into the convolutions
before them.

The lite family (no squeeze-and-excite, ReLU6, TensorFlow "SAME" padding) follows the checkpoint's own shapes: a stage
begins where the width of the block output changes, and its first block has the stage's stride.

Checkpoints have the older, unzipped format, and are read with numpy alone. A pickle can name any function; the reader
knows a few harmless names and refuses every other one, so a hostile file runs nothing.
"""

import collections
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from appliance.demo.zoo.graphs import Array, Graph

STAGE_STRIDES = (1, 2, 2, 2, 1, 2, 1)
NORM_EPSILON = 1e-3


def build(checkpoint: Path) -> onnx.ModelProto:
    """`image` FP32[N, 3, H, W] (RGB, (v - 127) / 128) to `probabilities` FP32[N, 1000] over the ImageNet classes."""
    net = _Net(read_checkpoint(checkpoint))
    value = net.conv("image", "_conv_stem", "_bn0", stride=2)
    stage, width, index = -1, 0, 0
    while (block := f"_blocks.{index}") + "._project_conv.weight" in net.weights:
        width_out = net.weights[f"{block}._project_conv.weight"].shape[0]
        is_first = width_out != width
        stage += is_first
        value = net.block(value, block, stride=STAGE_STRIDES[stage] if is_first else 1, keeps_width=not is_first)
        width, index = width_out, index + 1
    value = net.add("GlobalAveragePool", [net.conv(value, "_conv_head", "_bn1")], "pool")
    value = net.add("Flatten", [value], "flat", axis=1)
    dense = [net.constant(name, np.float32(net.weights[name])) for name in ("_fc.weight", "_fc.bias")]
    value = net.add("Gemm", [value, *dense], "logits", transB=1)
    net.add("Softmax", [value], "probabilities", axis=1)
    classes = len(net.weights["_fc.bias"])
    return net.model(checkpoint.stem, {"image": ("N", 3, "H", "W")}, {"probabilities": ("N", classes)})


class _Net(Graph):
    """The graph so far, and the weights of the checkpoint."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        super().__init__()
        self.weights = weights

    def block(self, value: str, name: str, stride: int, keeps_width: bool) -> str:
        """Inverted residual: expand, depthwise, project; plus its input where the shape stays."""
        inside = value
        if f"{name}._expand_conv.weight" in self.weights:
            inside = self.conv(inside, f"{name}._expand_conv", f"{name}._bn0")
        inside = self.conv(inside, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride)
        inside = self.conv(inside, f"{name}._project_conv", f"{name}._bn2", is_active=False)
        return self.add("Add", [inside, value], f"{name}.add") if keeps_width else inside

    def conv(self, value: str, name: str, norm: str, stride: int = 1, is_active: bool = True) -> str:
        """Convolution with its batch norm folded in, then ReLU6 where it is active."""
        kernel = self.weights[f"{name}.weight"]
        scale, shift, mean, variance = (
            self.weights[f"{norm}.{part}"] for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = scale / np.sqrt(variance + NORM_EPSILON)
        weight = self.constant(f"{name}.weight", np.float32(kernel * factor[:, None, None, None]))
        bias = self.constant(f"{name}.bias", np.float32(shift - mean * factor))
        sides = {"kernel_shape": kernel.shape[2:], "strides": [stride] * 2}
        group = len(kernel) if kernel.shape[1] == 1 else 1
        result = self.add("Conv", [value, weight, bias], name, **sides, auto_pad="SAME_UPPER", group=group)
        limits = [self.constant(f"relu6.{end}", np.float32(limit)) for end, limit in (("low", 0), ("high", 6))]
        return self.add("Clip", [result, *limits], f"{name}.relu6") if is_active else result


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): lambda storage, offset, size, stride, *_: (storage, offset, size, stride),
    ("torch", "FloatStorage"): np.dtype(np.float32),
    ("torch", "LongStorage"): np.dtype(np.int64),
}


class _Reader(pickle.Unpickler):
    """Unpickles tensors, dictionaries and plain values."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"the checkpoint wants {module}.{name}, which is not a tensor")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> tuple[np.dtype[Any], str]:
        _kind, dtype, key, *_ = pid
        return dtype, key


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The state dictionary: name to array."""
    with path.open("rb") as file:
        _magic, _protocol, _system, state, keys = (_Reader(file).load() for _ in range(5))
        dtypes = {key: dtype for (dtype, key), *_ in state.values()}
        data = {key: file.read(int.from_bytes(file.read(8), "little") * dtypes[key].itemsize) for key in keys}
    return {name: _view(data[storage[1]], storage[0], *view) for name, (storage, *view) in state.items()}


def _view(data: bytes, dtype: np.dtype[Any], offset: int, size: Sequence[int], stride: Sequence[int]) -> Array:
    """A tensor of the values of a storage, by elements. Raises where it reaches beyond them."""
    strides = [step * dtype.itemsize for step in stride]
    return np.ndarray(size, dtype, data, offset * dtype.itemsize, strides).copy()
