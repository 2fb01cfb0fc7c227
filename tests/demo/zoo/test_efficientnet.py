"""Checkpoints give their tensors and run nothing, however they are made."""

import collections
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from appliance.demo.zoo import efficientnet, graphs
from appliance.demo.zoo.efficientnet import read_checkpoint

Array = npt.NDArray[Any]
MAGIC = 0x1950A86A20F9469CFC6C


class FloatStorage:
    """Stands for torch.FloatStorage in the pickle."""

    def __init__(self, values: Array, key: str) -> None:
        self.values, self.key = values.astype(np.float32).ravel(), key


def _rebuild_tensor_v2(*arguments: object) -> None:
    """Stands for the function that PyTorch names in its pickles."""


class Tensor:
    """Pickles as PyTorch's tensors do."""

    def __init__(self, values: Array, key: str, transposed: bool = False) -> None:
        self.storage = FloatStorage(values, key)
        shape = values.shape
        strides = tuple(int(np.prod(shape[axis + 1 :], dtype=int)) for axis in range(len(shape)))
        self.size, self.stride = (shape[::-1], strides[::-1]) if transposed else (shape, strides)

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return _rebuild_tensor_v2, (self.storage, 0, self.size, self.stride, False, collections.OrderedDict())


class Writer(pickle.Pickler):
    """Storages by reference, as PyTorch writes them."""

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, FloatStorage):
            return ("storage", FloatStorage, obj.key, "cpu", len(obj.values), None)
        return None


@pytest.fixture
def torch_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle must say `torch.FloatStorage`; PyTorch itself is not needed for that."""
    torch, inner = ModuleType("torch"), ModuleType("torch._utils")
    monkeypatch.setattr(FloatStorage, "__module__", "torch")
    monkeypatch.setattr(_rebuild_tensor_v2, "__module__", "torch._utils")
    torch.__dict__["FloatStorage"] = FloatStorage
    inner.__dict__["_rebuild_tensor_v2"] = _rebuild_tensor_v2
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", inner)


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor]) -> Path:
    with path.open("wb") as file:
        for value in (MAGIC, 1001, {"little_endian": True}):
            pickle.dump(value, file, protocol=2)
        Writer(file, protocol=2).dump(collections.OrderedDict(tensors))
        pickle.dump([tensor.storage.key for tensor in tensors.values()], file, protocol=2)
        for tensor in tensors.values():
            file.write(len(tensor.storage.values).to_bytes(8, "little") + tensor.storage.values.tobytes())
    return path


@pytest.mark.usefixtures("torch_names")
def test_checkpoint_tensors_are_read_with_shapes_and_strides(tmp_path: Path) -> None:
    """Values and shapes are those that were written, strides included."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensors = {
        "a": Tensor(values, "0"),
        "b": Tensor(values, "1", transposed=True),
        "c": Tensor(np.full((), 7, np.float32), "2"),
    }
    read = read_checkpoint(write_checkpoint(tmp_path / "net.pth", tensors))
    assert np.array_equal(read["a"], values)
    assert np.array_equal(read["b"], values.T)
    assert read["c"] == 7


class Hostile:
    """A pickle that would run a program."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("touch /tmp/this-must-not-exist",)


def test_checkpoint_with_hostile_pickle_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    """A checkpoint that names any other function is refused by that name."""
    path = tmp_path / "net.pth"
    with path.open("wb") as file:
        parts: tuple[object, ...] = (MAGIC, 1001, {}, {"weights": Hostile()}, [])
        for value in parts:
            pickle.dump(value, file, protocol=2)
    with pytest.raises(pickle.UnpicklingError, match=r"system, which is not a tensor"):
        read_checkpoint(path)


@pytest.mark.usefixtures("torch_names")
def test_efficientnet_graph_computes_the_reference_arithmetic(tmp_path: Path) -> None:
    """A net of two blocks on a grey 1x1 picture equals the arithmetic written out: convolution, batch norm, ReLU6,
    residual, softmax.
    """
    import onnxruntime as ort

    rng = np.random.default_rng(1)
    weights: dict[str, Array] = {}

    def conv(name: str, norm: str, shape: tuple[int, ...]) -> None:
        weights[f"{name}.weight"] = rng.standard_normal(shape)
        for part, centre in (("weight", 1.0), ("bias", 0.3), ("running_mean", 0.1), ("running_var", 1.0)):
            weights[f"{norm}.{part}"] = centre + 0.1 * np.abs(rng.standard_normal(shape[0]))

    conv("_conv_stem", "_bn0", (4, 3, 3, 3))
    for index in range(2):
        block = f"_blocks.{index}"
        if index:
            conv(f"{block}._expand_conv", f"{block}._bn0", (8, 4, 1, 1))
        conv(f"{block}._depthwise_conv", f"{block}._bn1", (8 if index else 4, 1, 3, 3))
        conv(f"{block}._project_conv", f"{block}._bn2", (4, 8 if index else 4, 1, 1))
    conv("_conv_head", "_bn1", (6, 4, 1, 1))
    weights["_fc.weight"], weights["_fc.bias"] = rng.standard_normal((10, 6)), rng.standard_normal(10)
    tensors = {name: Tensor(values, str(number)) for number, (name, values) in enumerate(weights.items())}
    model = efficientnet.build(write_checkpoint(tmp_path / "net.pth", tensors))
    net = ort.InferenceSession(graphs.save(model, tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])

    def stage(value: Array, name: str, norm: str, active: bool = True) -> Array:
        """On a 1x1 picture only the middle of a kernel counts."""
        kernel = weights[f"{name}.weight"]
        middle = kernel[:, :, kernel.shape[2] // 2, kernel.shape[3] // 2]
        summed = middle[:, 0] * value if kernel.shape[1] == 1 else middle @ value
        scaled = (summed - weights[f"{norm}.running_mean"]) / np.sqrt(weights[f"{norm}.running_var"] + 1e-3)
        result = scaled * weights[f"{norm}.weight"] + weights[f"{norm}.bias"]
        return np.clip(result, 0, 6) if active else result

    pixel = rng.standard_normal(3)
    value = stage(pixel, "_conv_stem", "_bn0")
    for index in range(2):
        block, before = f"_blocks.{index}", value
        inside = stage(value, f"{block}._expand_conv", f"{block}._bn0") if index else value
        inside = stage(inside, f"{block}._depthwise_conv", f"{block}._bn1")
        value = stage(inside, f"{block}._project_conv", f"{block}._bn2", active=False)
        value = value + before if index else value
    logits = weights["_fc.weight"] @ stage(value, "_conv_head", "_bn1") + weights["_fc.bias"]
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    answer = net.run(None, {"image": pixel.astype(np.float32).reshape(1, 3, 1, 1)})[0][0]
    assert np.allclose(answer, expected, atol=1e-5)
