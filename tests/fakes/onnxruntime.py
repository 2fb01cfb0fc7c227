"""ONNX Runtime as it is on a machine with other providers: sessions compute on the CPU, and say what such a machine's
would say. What it imitates was read in the sources of version 1.31 and its documents; nothing of it ran on a GPU.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as real
from onnx import numpy_helper

CPU = "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
XNNPACK = "XnnpackExecutionProvider"
GPU = (TENSORRT, "CUDAExecutionProvider", XNNPACK)
_STRICT = "session.disable_cpu_ep_fallback"


class FakeOnnxRuntime:
    """Stands for the module; what is not here is the real one's."""

    def __init__(self) -> None:
        self.providers: tuple[str, ...] = GPU
        """That this build of the runtime has."""
        self.has_driver = True
        """Without one every session falls back to the CPU in silence."""
        self.on_cpu: frozenset[str] = frozenset()
        """Operators that no other provider knows."""
        self.computes_elsewhere = False
        """Nodes are placed on the device, but run on the CPU."""
        self.tells_placement = True
        """False: a version that cannot."""
        self.compiled: list[str] = []
        """Graphs that TensorRT has compiled, each time anew."""
        self.sessions: list[FakeSession] = []
        self.has_libraries = False
        """CUDA's are no longer where the system looks: `preload_dlls` finds them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)

    def preload_dlls(self) -> None:
        self.has_libraries = True

    def get_available_providers(self) -> list[str]:
        return [*self.providers, CPU]

    def InferenceSession(
        self, path: str, options: Any, providers: Sequence[tuple[str, dict[str, str]]]
    ) -> "FakeSession":
        session = FakeSession(self, path, options, providers)
        self.sessions.append(session)
        return session


class FakeSession:
    """One on the CPU that says it were elsewhere."""

    def __init__(
        self, runtime: FakeOnnxRuntime, path: str, options: Any, providers: Sequence[tuple[str, dict[str, str]]]
    ) -> None:
        self._runtime = runtime
        is_strict = _has(options, _STRICT)
        if is_strict:
            options.add_session_config_entry(_STRICT, "0")  # it is the CPU that computes here
        self._session = real.InferenceSession(path, options, providers=[CPU])
        self.wanted = list(providers)
        self.path = path
        self._is_there = runtime.has_driver and (runtime.has_libraries or self.wanted[0][0] == XNNPACK)
        left = {
            node.op_type for part in self._session.get_provider_graph_assignment_info() for node in part.get_nodes()
        }
        if is_strict and (not self._is_there or left & runtime.on_cpu):
            raise RuntimeError("This session contains graph nodes that are assigned to the default CPU EP")
        if runtime.tells_placement:
            self.get_provider_graph_assignment_info = self._placement
        if self._is_there and self.wanted[0][0] == TENSORRT:
            self._compile(dict(self.wanted[0][1]))

    def __getattr__(self, name: str) -> Any:
        if name == "get_provider_graph_assignment_info":  # of a version that cannot tell
            raise AttributeError(name)
        return getattr(self._session, name)

    def get_providers(self) -> list[str]:
        return [*(name for name, _ in self.wanted), CPU] if self._is_there else [CPU]

    def _placement(self) -> list[Any]:
        device = self.wanted[0][0] if self._is_there else CPU
        nodes = [node for part in self._session.get_provider_graph_assignment_info() for node in part.get_nodes()]
        return [
            SimpleNamespace(
                ep_name=CPU if node.op_type in self._runtime.on_cpu else device, get_nodes=lambda node=node: [node]
            )
            for node in nodes
        ]

    def run(self, names: Any, inputs: Any, options: Any = None) -> Any:
        """An engine that meets another length than it was compiled for is compiled anew, whatever that takes."""
        most = dict(self.wanted[0][1]).get("trt_profile_max_shapes", "")
        for one in filter(None, most.split(",")):
            name, _, shape = one.rpartition(":")
            if name in inputs and inputs[name].shape[0] > int(shape.partition("x")[0]):
                self._runtime.compiled.append(self.path)
        return self._session.run(names, inputs, options)

    def end_profiling(self) -> str:
        path = Path(self._session.end_profiling())
        events = json.loads(path.read_text())
        if self._is_there and not self._runtime.computes_elsewhere:
            for event in events:
                if event.get("cat") == "Node" and event["args"].get("op_name") not in self._runtime.on_cpu:
                    event["args"]["provider"] = self.wanted[0][0]
        path.write_text(json.dumps(events))
        return str(path)

    def _compile(self, options: dict[str, str]) -> None:
        """Its cache is found by the name of the file and the graph, wherever the folder is."""
        _check_quantization(onnx.load(self.path), options.get("trt_int8_enable") == "1")
        graph = [node.name for part in self._session.get_provider_graph_assignment_info() for node in part.get_nodes()]
        text = f"{Path(self.path).name}{graph}{options.get('trt_profile_max_shapes')}{options.get('trt_int8_enable')}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        if options.get("trt_engine_cache_enable") != "1":
            self._runtime.compiled.append(self.path)
            return
        engine = Path(options["trt_engine_cache_path"]) / f"TensorrtExecutionProvider_{digest}_sm90.engine"
        if not engine.exists():
            self._runtime.compiled.append(self.path)
            engine.write_bytes(b"engine")
        if options.get("trt_timing_cache_enable") == "1":  # written at each session, so its size changes
            with (engine.parent / "TensorrtExecutionProvider_cache_sm90.timing").open("ab") as file:
                file.write(b"timing")


def _check_quantization(model: onnx.ModelProto, has_flag: bool) -> None:
    """What TensorRT 10 says of a network that quantizes, where it is not as it wants it: explicit and symmetric, one
    scale for a tensor between operators, one for each channel of weights at most.
    """
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        if not has_flag:
            raise RuntimeError("Int8 precision has been set for a layer, but the builder is not configured for it")
        zero, source = constants[node.input[2]], constants.get(node.input[0])
        if zero.dtype != np.int8 or zero.any():
            raise RuntimeError("TensorRT only supports symmetric quantization. The zero point must be zero")
        if source is None and constants[node.input[1]].size != 1:
            raise RuntimeError("Activations are quantized per tensor")
        if source is not None and source.dtype != np.int8:
            raise RuntimeError("Weights are of signed bytes")


def _has(options: Any, key: str) -> bool:
    try:
        return bool(options.get_session_config_entry(key) == "1")
    except Exception:  # it was not set
        return False
