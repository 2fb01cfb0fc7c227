"""The blocking half of `dla`: engines for DLA cores, compiled at import and read on each core.

Engines compute in half precision, and in eight bits what is quantized, which a DLA wants said in its own way
(`dla/implicit.py`). That is how TensorRT up to 10 has it. From 11 on it takes neither orders nor ranges, so the network
is written in half precision (`dla/half.py`), and what is quantized is computed in that, too; callers' floats are
converted on their way in and out.

A core has no free shapes, so the engine of a network that takes any number of rows computes one; a batch is its rows
one after the other, which is the same for all that a DLA can compute (the import compares it). Without leave to fall
back to the GPU, what a core cannot compute is an error of the compiler, and the network serves elsewhere.
"""

import json
import queue
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from appliance.domain.errors import LoadFailed, RunRefused, RunStopped
from appliance.domain.hardware import PreparedForm
from appliance.domain.request import Tensors
from appliance.runtime.processors.dla.buffers import Buffers, cuda
from appliance.runtime.processors.dla.cores import CORES_MAX
from appliance.runtime.processors.dla.half import LARGEST, make_half
from appliance.runtime.processors.dla.implicit import make_implicit
from appliance.runtime.processors.providers.symmetric import make_symmetric

_PLAN = "model.plan"
_FLOATS = "floats.json"
"""Beside a plan: what callers have as floats of what goes in and comes out in half precision."""
LOADABLES_MAX = 16
"""Engines that a core holds at once."""


@dataclass(slots=True)
class Stop:
    """Ends a run between two of its rows."""

    terminate: bool = False


@dataclass(slots=True)
class _OnCore:
    """An engine on one core."""

    engine: Any
    context: Any
    buffers: Buffers
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    floats: frozenset[str] = frozenset()
    """Of these, what callers have as floats and the engine in half precision."""


@dataclass(slots=True)
class Loaded:
    """An engine on each core; a run takes one that is free."""

    build_id: str
    cores: list[_OnCore] = field(default_factory=list)
    free: "queue.SimpleQueue[_OnCore]" = field(default_factory=queue.SimpleQueue)


class DlaSessions:
    """Makes, uses and drops engines."""

    def __init__(self, workers: int) -> None:
        """One core for each worker."""
        import tensorrt

        self._trt = tensorrt
        self._cuda = cuda()
        self._logger = _listening(tensorrt)
        self._cores = min(workers, CORES_MAX, int(tensorrt.Builder(self._logger).num_DLA_cores))
        self._loaded = 0

    def stop(self) -> Stop:
        return Stop()

    def load(self, form: PreparedForm) -> Loaded:
        """Raises: LoadFailed."""
        if not self._cores:
            raise LoadFailed(build_id=form.build_id, reason="this machine has no DLA")
        if not form.optimised:
            raise LoadFailed(build_id=form.build_id, reason="it is not compiled for a DLA")
        if self._loaded >= LOADABLES_MAX:
            raise LoadFailed(build_id=form.build_id, reason=f"a DLA holds no more than {LOADABLES_MAX} networks")
        loaded = Loaded(form.build_id)
        try:
            plan = Path(form.path).read_bytes()
            beside = Path(form.path).with_name(_FLOATS)
            floats = frozenset(json.loads(beside.read_bytes()) if beside.exists() else ())
            for core in range(self._cores):
                loaded.cores.append(self._on_core(core, plan, floats))
        except Exception as error:
            self._drop(loaded)
            raise LoadFailed(build_id=form.build_id, reason=str(error)[:500]) from error
        for one in loaded.cores:
            loaded.free.put(one)
        self._loaded += 1
        return loaded

    def _on_core(self, core: int, plan: bytes, floats: frozenset[str]) -> _OnCore:
        trt = self._trt
        runtime = trt.Runtime(self._logger)
        self._logger.told.clear()
        runtime.DLA_core = core  # before the engine is read: afterwards it is on core 0
        engine = runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise ValueError(self._logger.said("the engine is of another version or device"))
        context = engine.create_execution_context()
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        sizes = {
            name: int(np.prod(tuple(engine.get_tensor_shape(name)), initial=1))
            * np.dtype(trt.nptype(engine.get_tensor_dtype(name))).itemsize
            for name in names
        }
        buffers = Buffers(self._cuda, sizes)
        for name in names:
            context.set_tensor_address(name, buffers.place(name))
        is_input = {name: engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
        inputs = tuple(name for name in names if is_input[name])
        outputs = tuple(name for name in names if not is_input[name])
        return _OnCore(engine, context, buffers, inputs, outputs, floats)

    def run(self, loaded: Loaded, inputs: Tensors, outputs: Sequence[str] | None, stop: Any = None) -> dict[str, Any]:
        """One inference; the arrays are the caller's. Raises: RunRefused; RunStopped."""
        core = loaded.free.get()
        try:
            rows = {name: self._rows(core, name, inputs) for name in core.inputs}
            count = {len(each) for each in rows.values()}
            if len(count) != 1 or set(inputs) != set(core.inputs):
                raise ValueError(f"its inputs are {', '.join(core.inputs)}, of as many rows each")
            found: list[dict[str, Any]] = []
            for row in range(count.pop()):
                if stop is not None and stop.terminate:
                    raise RunStopped(variant_id=loaded.build_id, reason="it took longer than it may")
                found.append(self._run(core, {name: each[row] for name, each in rows.items()}))
            names = core.outputs if outputs is None else outputs
            return {name: np.concatenate([each[name] for each in found]) for name in names}
        except RunStopped:
            raise
        except Exception as error:
            raise RunRefused(variant_id=loaded.build_id, reason=str(error)[:500]) from error
        finally:
            loaded.free.put(core)

    def _rows(self, core: _OnCore, name: str, inputs: Tensors) -> list[Any]:
        """The rows of an input, so many at a time as the engine takes: one, unless the network says how many."""
        shape = tuple(core.engine.get_tensor_shape(name))
        kind = np.dtype(self._trt.nptype(core.engine.get_tensor_dtype(name)))
        array = inputs[name]
        step = shape[0]
        if (
            array.shape[1:] != shape[1:]
            or array.dtype != (np.float32 if name in core.floats else kind)
            or not len(array)
            or len(array) % step
        ):
            raise ValueError(f"input {name!r} has the shape {list(array.shape)} in place of {list(shape)}")
        if name in core.floats:
            array = np.clip(array, -LARGEST, LARGEST)
        return [np.ascontiguousarray(array[row : row + step], kind) for row in range(0, len(array), step)]

    def _run(self, core: _OnCore, row: dict[str, Any]) -> dict[str, Any]:
        trt, found = self._trt, {}
        for name, array in row.items():
            core.buffers.write(name, array)
        if not core.context.execute_async_v3(int(core.buffers.stream)):
            raise ValueError("the engine does not run")
        for name in core.outputs:
            kind = np.dtype(trt.nptype(core.engine.get_tensor_dtype(name)))
            found[name] = np.empty(tuple(core.engine.get_tensor_shape(name)), kind)
            core.buffers.read(name, found[name])
        core.buffers.wait()
        return {name: array.astype(np.float32) if name in core.floats else array for name, array in found.items()}

    def unload(self, loaded: Loaded) -> None:
        """Drop its engines, once no run has one."""
        for _ in loaded.cores:
            loaded.free.get()
        self._drop(loaded)
        self._loaded -= 1

    @staticmethod
    def _drop(loaded: Loaded) -> None:
        for one in loaded.cores:
            with suppress(Exception):
                one.buffers.close()
        loaded.cores.clear()

    def fell_back_to(self, loaded: Loaded) -> str:
        """Nothing does: engines are compiled without leave to."""
        return ""

    def supports(self, network: Path) -> bool:
        """Whether a core computes all of it."""
        try:
            self._compile(network)
        except Exception:  # a layer that it does not know ...
            return False
        return True

    def prepare(self, source: Path, target_dir: Path) -> str:
        """Compile into an empty folder: seconds to minutes. Raises: LoadFailed where a DLA cannot compute it."""
        try:
            plan, floats = self._compile(source)
        except Exception as error:  # a layer that it does not know ...: another kind serves
            raise LoadFailed(build_id=source.name, reason=str(error)[:500]) from error
        (target_dir / _PLAN).write_bytes(plan)
        if floats:
            (target_dir / _FLOATS).write_text(json.dumps(floats))
        return _PLAN

    def _compile(self, source: Path) -> tuple[bytes, list[str]]:
        """The engine, and what goes in and comes out that callers have as floats and it in half precision."""
        import onnx

        trt = self._trt
        model = onnx.load(str(source))
        make_symmetric(model)
        is_quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
        names = ("FP16", "INT8") if is_quantized else ("FP16",)
        flags = [flag for name in names if (flag := getattr(trt.BuilderFlag, name, None)) is not None]
        reaches = make_implicit(model) if is_quantized else {}
        floats: list[str] = []
        if not flags:  # from TensorRT 11 on the network alone says in what it is computed
            floats, reaches = make_half(model), {}
        builder = trt.Builder(self._logger)
        network = builder.create_network(0)
        parser = trt.OnnxParser(network, self._logger)
        self._logger.told.clear()
        if not parser.parse(model.SerializeToString()):
            raise ValueError(self._logger.said("TensorRT cannot read it"))
        for index in range(network.num_inputs):
            tensor = network.get_input(index)
            rows, *sides = tuple(tensor.shape)
            if any(side < 0 for side in sides):
                raise ValueError("its inputs are of free size")
            if rows < 0:
                tensor.shape = (1, *sides)
        config = builder.create_builder_config()
        config.default_device_type = trt.DeviceType.DLA
        config.DLA_core = 0
        for flag in flags:
            config.set_flag(flag)
        for tensor in _tensors(network):
            if tensor.name in reaches:
                tensor.dynamic_range = (-reaches[tensor.name], reaches[tensor.name])
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise ValueError(self._logger.said("a DLA cannot compute it"))
        return bytes(plan), floats


def _tensors(network: Any) -> Iterator[Any]:
    """Inputs of a network, and what its layers compute."""
    yield from (network.get_input(index) for index in range(network.num_inputs))
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        yield from (layer.get_output(index) for index in range(layer.num_outputs))


def _listening(trt: Any) -> Any:
    """A logger that keeps what TensorRT complains of, for it says no other way why it compiles nothing."""

    class Listening(trt.ILogger):  # type: ignore[misc] # there is no base to check
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.told: list[str] = []

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.told.append(text)

        def said(self, otherwise: str) -> str:
            """The first complaint since it was cleared."""
            return f"{otherwise}: {self.told[0].strip()}" if self.told else otherwise

    return Listening()
