"""EfficientNet-lite as ONNX, built node by node from a PyTorch checkpoint; batch norms are folded into the convolutions
before them.

The lite family (no squeeze-and-excite, ReLU6, TensorFlow "SAME" padding) follows the checkpoint's own shapes: a stage
begins where the width of the block output changes, and its first block has the stage's stride.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from appliance.demo.zoo import graphs
from appliance.demo.zoo.checkpoints import read_checkpoint

Weights = Mapping[str, npt.NDArray[Any]]

STAGE_STRIDES = (1, 2, 2, 2, 1, 2, 1)
NORM_EPSILON = 1e-3


def build(checkpoint: Path) -> onnx.ModelProto:
    """`image` FP32[N, 3, H, W] (RGB, (v - 127) / 128) to `probabilities` FP32[N, 1000] over the ImageNet classes."""
    net = _Net(read_checkpoint(checkpoint))
    value = net.conv("image", "_conv_stem", "_bn0", stride=2)
    stage, width = -1, 0
    for index in range(net.block_count):
        block = f"_blocks.{index}"
        width_out = net.weights[f"{block}._project_conv.weight"].shape[0]
        first = width_out != width
        stage += first
        value = net.block(value, block, stride=STAGE_STRIDES[stage] if first else 1, keeps_width=not first)
        width = width_out
    value = net.conv(value, "_conv_head", "_bn1")
    net.classifier(value)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, "H", "W"])
    classes = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", len(net.weights["_fc.bias"])])
    return graphs.model_of(helper.make_graph(net.nodes, checkpoint.stem, [image], [classes], net.initializers))


class _Net:
    """Nodes and folded weights so far."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.block_count = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("_blocks."))
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def block(self, value: str, name: str, stride: int, keeps_width: bool) -> str:
        """Inverted residual: expand, depthwise, project; plus its input where the shape stays."""
        inside = value
        if f"{name}._expand_conv.weight" in self.weights:
            inside = self.conv(inside, f"{name}._expand_conv", f"{name}._bn0")
        inside = self.conv(inside, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride)
        inside = self.conv(inside, f"{name}._project_conv", f"{name}._bn2", active=False)
        return self._node("Add", [inside, value], f"{name}.add") if keeps_width else inside

    def conv(self, value: str, name: str, norm: str, stride: int = 1, active: bool = True) -> str:
        """Convolution with its batch norm folded in, then ReLU6 where `active`."""
        kernel = self.weights[f"{name}.weight"]
        scale = self.weights[f"{norm}.weight"] / np.sqrt(self.weights[f"{norm}.running_var"] + NORM_EPSILON)
        weight = self._constant(f"{name}.weight", kernel * scale[:, None, None, None])
        bias = self._constant(
            f"{name}.bias", self.weights[f"{norm}.bias"] - self.weights[f"{norm}.running_mean"] * scale
        )
        sides, depthwise = list(kernel.shape[2:]), kernel.shape[1] == 1
        result = self._node(
            "Conv",
            [value, weight, bias],
            name,
            kernel_shape=sides,
            strides=[stride] * 2,
            auto_pad="SAME_UPPER",
            group=kernel.shape[0] if depthwise else 1,
        )
        return self._node("Clip", [result, *self._limits()], f"{name}.relu6") if active else result

    def classifier(self, value: str) -> None:
        """Global mean, dense layer, softmax into `probabilities`."""
        pooled = self._node("GlobalAveragePool", [value], "pool")
        flat = self._node("Flatten", [pooled], "flat", axis=1)
        weight, bias = (self._constant(f"_fc.{part}", self.weights[f"_fc.{part}"]) for part in ("weight", "bias"))
        logits = self._node("Gemm", [flat, weight, bias], "logits", transB=1)
        self._node("Softmax", [logits], "probabilities", axis=1)

    def _limits(self) -> tuple[str, str]:
        if not any(tensor.name == "relu6.low" for tensor in self.initializers):
            self._constant("relu6.low", np.array(0.0))
            self._constant("relu6.high", np.array(6.0))
        return "relu6.low", "relu6.high"

    def _constant(self, name: str, values: npt.NDArray[Any]) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def _node(self, operation: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operation, inputs, [name], name, **attributes))
        return name
