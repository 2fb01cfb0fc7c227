"""TensorRT's Python API and CUDA's, as far as engines for DLA cores need them, on a machine without either: engines
compute by ONNX Runtime on the CPU. Names and behaviour are those of NVIDIA's reference for TensorRT 10.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

LAYERS = frozenset("Add BatchNormalization Clip Concat Conv MaxPool Mul Relu Sigmoid Sub Sum Tanh".split())
"""Operators that a DLA computes."""


class _Tensor:
    def __init__(self, value: Any) -> None:
        self.name = value.name
        self.shape: tuple[int, ...] = tuple(side.dim_value or -1 for side in value.type.tensor_type.shape.dim)


class FakeTensorRt:
    """Stands for the module `tensorrt`."""

    TensorIOMode = SimpleNamespace(INPUT="input", OUTPUT="output")
    DeviceType = SimpleNamespace(DLA="dla", GPU="gpu")
    BuilderFlag = SimpleNamespace(FP16="fp16", INT8="int8")

    def __init__(self, cores: int = 2) -> None:
        self.cores = cores
        self.flags: list[str] = []
        self.runs: list[int] = []
        """The core of each run."""

        class Logger:
            ERROR = 1

            def __init__(self, _level: int) -> None: ...

        self.Logger = Logger

    @staticmethod
    def nptype(kind: Any) -> Any:
        return kind

    def Builder(self, _logger: Any) -> Any:
        return SimpleNamespace(
            num_DLA_cores=self.cores,
            create_network=lambda flags: SimpleNamespace(model=None, inputs=[]),
            create_builder_config=lambda: SimpleNamespace(
                set_flag=self.flags.append, default_device_type="gpu", DLA_core=-1
            ),
            build_serialized_network=self._build,
        )

    def OnnxParser(self, network: Any, _logger: Any) -> Any:
        def parse(content: bytes) -> bool:
            network.model = onnx.load_from_string(content)
            network.inputs = [_Tensor(one) for one in network.model.graph.input]
            network.num_inputs = len(network.inputs)
            network.get_input = network.inputs.__getitem__
            return True

        return SimpleNamespace(parse=parse)

    @staticmethod
    def _build(network: Any, config: Any) -> Any:
        """None where a layer is none of a DLA's, as without leave to fall back."""
        assert config.default_device_type == "dla"
        if any(node.op_type not in LAYERS for node in network.model.graph.node):
            return None
        assert all(side > 0 for tensor in network.inputs for side in tensor.shape), "a DLA has no free shapes"
        for value, tensor in zip(network.model.graph.input, network.inputs, strict=True):
            del value.type.tensor_type.shape.dim[:]
            shape = helper.make_tensor_value_info("", 1, tensor.shape).type.tensor_type.shape
            value.type.tensor_type.shape.CopyFrom(shape)
        for value in network.model.graph.output:
            value.type.tensor_type.ClearField("shape")
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


class Engine:
    """A plan on one core."""

    def __init__(self, module: FakeTensorRt, plan: bytes, core: int) -> None:
        self._module, self._core = module, core
        self._session = ort.InferenceSession(plan, providers=["CPUExecutionProvider"])
        self._inputs = {one.name: tuple(one.shape) for one in self._session.get_inputs()}
        self._shapes = self._inputs | {one.name: tuple(one.shape) for one in self._session.get_outputs()}
        self.num_io_tensors = len(self._shapes)
        self._places: dict[str, int] = {}

    def get_tensor_name(self, index: int) -> str:
        names: list[str] = list(self._shapes)
        return names[index]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def get_tensor_dtype(self, _name: str) -> Any:
        return np.float32

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
            count = int(np.prod(shape)) * 4
            feeds[name] = np.frombuffer(ctypes.string_at(self._places[name], count), np.float32).reshape(shape)
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
