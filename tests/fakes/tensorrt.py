"""TensorRT's Python API and CUDA's, as far as engines for DLA cores need them, on a machine without either: engines
compute by ONNX Runtime on the CPU. Names and behaviour are those of NVIDIA's reference for TensorRT 10; `of(11)` is as
that of 11: a network is computed in the types that it says, and there are no flags and no ranges for anything else.
"""

import ctypes
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

LAYERS = frozenset("Add BatchNormalization Clip Concat Conv MaxPool Mul Relu Sigmoid Sub Sum Tanh".split())
"""Operators that a DLA computes. None of those that quantize: it knows implicit quantization only."""


class _Tensor:
    def __init__(self, name: str, shape: tuple[int, ...] = ()) -> None:
        self.name, self.shape = name, shape
        self.dynamic_range: tuple[float, float] | None = None


class _Layer:
    def __init__(self, node: Any) -> None:
        self.outputs = [_Tensor(name) for name in node.output]
        self.num_outputs = len(self.outputs)
        self.get_output = self.outputs.__getitem__


class _Network:
    """What a parser fills."""

    def __init__(self) -> None:
        self.model = onnx.ModelProto()
        self.inputs: list[_Tensor] = []
        self.layers: list[_Layer] = []

    def fill(self, model: onnx.ModelProto) -> None:
        self.model = model
        for one in model.graph.input:
            self.inputs.append(
                _Tensor(one.name, tuple(side.dim_value or -1 for side in one.type.tensor_type.shape.dim))
            )
        self.layers = [_Layer(node) for node in model.graph.node]
        self.num_inputs, self.num_layers = len(self.inputs), len(self.layers)
        self.get_input, self.get_layer = self.inputs.__getitem__, self.layers.__getitem__

    def ranges(self) -> dict[str, float]:
        """Tensor → how far it was said to reach from zero."""
        tensors = [*self.inputs, *(tensor for layer in self.layers for tensor in layer.outputs)]
        found = {one.name: one.dynamic_range for one in tensors if one.dynamic_range is not None}
        assert all(-low == high > 0 for low, high in found.values()), "quantization is symmetric"
        return {name: high for name, (_, high) in found.items()}


class _ILogger:
    """The base of what TensorRT tells its errors."""

    INTERNAL_ERROR, ERROR, WARNING = range(3)

    def log(self, severity: int, text: str) -> None:
        raise NotImplementedError


class FakeTensorRt:
    """Stands for the module `tensorrt`, of version 10."""

    TensorIOMode = SimpleNamespace(INPUT="input", OUTPUT="output")
    DeviceType = SimpleNamespace(DLA="dla", GPU="gpu")
    BuilderFlag = SimpleNamespace(FP16="fp16", INT8="int8")
    ILogger = _ILogger

    def __init__(self, cores: int = 2) -> None:
        self.cores = cores
        self.version = 10
        self.flags: list[str] = []
        """Of what was configured last."""
        self.ranges: dict[str, float] = {}
        """Of the tensors of the network that was built last."""
        self.runs: list[int] = []
        """The core of each run."""

    def of(self, version: int) -> None:
        """It is of another version from now on."""
        self.version = version
        self.BuilderFlag = SimpleNamespace() if version > 10 else FakeTensorRt.BuilderFlag

    @staticmethod
    def nptype(kind: Any) -> Any:
        return kind

    def Builder(self, logger: Any) -> Any:
        return SimpleNamespace(
            num_DLA_cores=self.cores,
            create_network=lambda flags: _Network(),
            create_builder_config=self._config,
            build_serialized_network=lambda network, config: self._build(network, config, logger),
        )

    def _config(self) -> Any:
        self.flags = []
        return SimpleNamespace(set_flag=self.flags.append, default_device_type="gpu", DLA_core=-1)

    def OnnxParser(self, network: _Network, logger: Any) -> Any:
        def parse(content: bytes) -> bool:
            model = onnx.load_from_string(content)
            if any(node.op_type == "MatMulInteger" for node in model.graph.node):
                logger.log(_ILogger.ERROR, "No importer registered for op: MatMulInteger")
                return False
            network.fill(model)
            return True

        return SimpleNamespace(parse=parse)

    def _build(self, network: _Network, config: Any, logger: Any) -> Any:
        """None where a layer is none of a DLA's, as without leave to fall back."""
        assert config.default_device_type == "dla"
        logger.log(_ILogger.WARNING, "It says many things.")
        others = sorted({node.op_type for node in network.model.graph.node} - LAYERS)
        if others:
            logger.log(_ILogger.ERROR, f"{others[0]} is not supported on DLA")
            return None
        assert all(side > 0 for tensor in network.inputs for side in tensor.shape), "a DLA has no free shapes"
        self.ranges = network.ranges()
        if self.version > 10:
            assert not self.ranges, "there is no such attribute any more"
            floats = _floats(network.model)
            if floats:
                logger.log(_ILogger.ERROR, f"{floats[0]} is of type FLOAT, which is not supported on DLA")
                return None
        if "int8" in self.flags and not self.ranges:
            logger.log(_ILogger.ERROR, "Calibration failure occurred with no scaling factors detected.")
            return None
        for value, tensor in zip(network.model.graph.input, network.inputs, strict=True):
            del value.type.tensor_type.shape.dim[:]
            shape = helper.make_tensor_value_info("", 1, tensor.shape).type.tensor_type.shape
            value.type.tensor_type.shape.CopyFrom(shape)
        for value in network.model.graph.output:
            value.type.tensor_type.ClearField("shape")
        if "int8" in self.flags:
            _quantize(network.model.graph, self.ranges)
        inferred = onnx.shape_inference.infer_shapes(network.model)
        return memoryview(inferred.SerializeToString())

    def Runtime(self, _logger: Any) -> Any:
        made = SimpleNamespace(DLA_core=-1)

        def read(plan: bytes) -> "Engine | None":
            try:
                return Engine(self, plan, made.DLA_core)
            except Exception:
                return None

        made.deserialize_cuda_engine = read
        return made


def _floats(model: onnx.ModelProto) -> list[str]:
    """Tensors of a network that are in single precision."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    values = [*inferred.input, *inferred.output, *inferred.value_info]
    found = [one.name for one in values if one.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    return found + [one.name for one in inferred.initializer if one.data_type == onnx.TensorProto.FLOAT]


def _quantize(graph: Any, ranges: Mapping[str, float]) -> None:
    """What a DLA makes of ranges: between layers values of a tensor that has one lie on 127 steps either way, and so do
    the weights of a convolution that takes one, for each of its channels.
    """
    constants = {one.name: one for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "Conv" and node.input[0] in ranges and node.input[1] in constants:
            weights = numpy_helper.to_array(constants[node.input[1]])
            steps = np.abs(weights).max(axis=(1, 2, 3), keepdims=True) / 127
            rounded = (np.rint(weights / np.where(steps > 0, steps, 1)) * steps).astype(weights.dtype)
            constants[node.input[1]].CopyFrom(numpy_helper.from_array(rounded, node.input[1]))
    graph.initializer.append(numpy_helper.from_array(np.zeros((), np.int8), "fake_zero"))
    readers = list(graph.node)
    for name, reach in ranges.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(reach / 127, np.float32), f"{name}_fake_scale"))
        for reader in readers:
            reader.input[:] = [f"{name}_fake" if one == name else one for one in reader.input]
        parameters = [f"{name}_fake_scale", "fake_zero"]
        graph.node.append(helper.make_node("QuantizeLinear", [name, *parameters], [f"{name}_fake_bytes"]))
        graph.node.append(helper.make_node("DequantizeLinear", [f"{name}_fake_bytes", *parameters], [f"{name}_fake"]))
    known = {one.name for one in (*graph.input, *graph.initializer)} | {""}
    left, ordered = list(graph.node), []
    while left:
        ready = [node for node in left if known.issuperset(node.input)]
        assert ready, "the graph has a circle"
        ordered += ready
        known |= {name for node in ready for name in node.output}
        left = [node for node in left if node not in ready]
    del graph.node[:]
    graph.node.extend(ordered)


class Engine:
    """A plan on one core."""

    def __init__(self, module: FakeTensorRt, plan: bytes, core: int) -> None:
        self._module, self._core = module, core
        self._session = ort.InferenceSession(plan, providers=["CPUExecutionProvider"])
        self._inputs = {one.name: tuple(one.shape) for one in self._session.get_inputs()}
        kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
        self._kinds = {
            one.name: np.dtype(kinds[one.type]) for one in (*self._session.get_inputs(), *self._session.get_outputs())
        }
        self._shapes = self._inputs | {one.name: tuple(one.shape) for one in self._session.get_outputs()}
        self.num_io_tensors = len(self._shapes)
        self._places: dict[str, int] = {}

    def get_tensor_name(self, index: int) -> str:
        names: list[str] = list(self._shapes)
        return names[index]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def get_tensor_dtype(self, name: str) -> Any:
        return self._kinds[name]

    def get_tensor_mode(self, name: str) -> str:
        return "input" if name in self._inputs else "output"

    def create_execution_context(self) -> "Engine":
        return self

    def set_tensor_address(self, name: str, place: int) -> None:
        self._places[name] = place

    def execute_async_v3(self, _stream: int) -> bool:
        self._module.runs.append(self._core)
        feeds = {}
        for name, shape in self._inputs.items():
            kind = self._kinds[name]
            content = ctypes.string_at(self._places[name], int(np.prod(shape)) * kind.itemsize)
            feeds[name] = np.frombuffer(content, kind).reshape(shape)
        names = [name for name in self._shapes if name not in self._inputs]
        for name, array in zip(names, self._session.run(names, feeds), strict=True):
            ctypes.memmove(self._places[name], np.ascontiguousarray(array).ctypes.data, array.nbytes)
        return True


class FakeCuda:
    """Stands for the module `cuda.bindings.runtime`; its memory is the machine's."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.fails = False

    def cudaStreamCreate(self) -> tuple[int, int]:
        return 0, 7

    def cudaStreamDestroy(self, _stream: int) -> tuple[int]:
        return (0,)

    def cudaStreamSynchronize(self, _stream: int) -> tuple[int]:
        return (700 if self.fails else 0,)

    def cudaMalloc(self, count: int) -> tuple[int, int]:
        buffer = ctypes.create_string_buffer(count)
        self.held[ctypes.addressof(buffer)] = buffer
        return 0, ctypes.addressof(buffer)

    def cudaFree(self, place: int) -> tuple[int]:
        del self.held[place]
        return (0,)

    def cudaMemcpyAsync(self, target: int, source: int, count: int, _kind: int, _stream: int) -> tuple[int]:
        ctypes.memmove(target, source, count)
        return (0,)
