"""OpenVINO on the CPU: the one place that knows how a network is compiled for it.

Serving and the measuring child both go through `OpenVinoSessions`, so what is measured is what serves. The prepared
form is what OpenVINO exports of a network that it compiled. (Its own cache would not do: it goes by the path of the
model, and forms are moved to their place.)
"""

import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from appliance.domain.errors import LoadFailed, RunRefused, RunStopped
from appliance.domain.hardware import PreparedForm
from appliance.domain.request import Tensors

_COMPILED = "model.blob"
_DEVICE = "CPU"


def _fill_tables() -> None:
    """Have OpenVINO's binding fill its tables of number types while only one thread can be in it: during the import.

    It fills them when the first tensor is made, inside a C++ static and with the interpreter's lock held; but that runs
    some Python, which lets other threads have the lock. A second thread that makes its first tensor at that moment
    waits for the static, and keeps the lock: the whole process stands.
    """
    tensor = ov.Tensor(np.zeros(1, np.float32), shared_memory=True)
    _ = tensor.data, ov.Type(np.float32).to_dtype()


_fill_tables()


_OPEN: list[Any] = []


def open_libraries() -> None:
    """Open for good what OpenVINO opens when a network wants it, and have it look at the processor: what is forked of
    this process may see neither.
    """
    core = ov.Core()
    core.get_property(_DEVICE, "FULL_DEVICE_NAME")
    # Networks come in ONNX, and in its own format within what was compiled of them.
    _OPEN.extend([core, *map(ov.frontend.FrontEndManager().load_by_framework, ("onnx", "ir"))])


class Stop:
    """Ends a run between two of its nodes: by `terminate = True`, as ONNX Runtime's options do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_wanted = False
        self._running: ov.InferRequest | None = None

    @property
    def terminate(self) -> bool:
        return self._is_wanted

    @terminate.setter
    def terminate(self, wanted: bool) -> None:
        with self._lock:
            self._is_wanted = wanted
            if wanted and self._running is not None:
                self._running.cancel()

    def begin(self, request: ov.InferRequest | None) -> bool:
        """The run begins; false when it need not. `request`: None where it cannot be ended before its time."""
        with self._lock:
            self._running = request
            return not self._is_wanted

    def end(self) -> None:
        """The run is over: its request is others' now."""
        with self._lock:
            self._running = None


@dataclass(slots=True)
class Compiled:
    """A network in memory, with a request for each run that it takes at once."""

    model: ov.CompiledModel
    build_id: str
    outputs: dict[str, int]
    """Name → place."""
    can_cancel: bool
    """Whether a run may be ended between two nodes. Not where inputs have several shapes: OpenVINO then leaves some of
    the shapes of that run in its stream, and runs after it fail, or give answers of another shape."""
    requests: "queue.SimpleQueue[ov.InferRequest]" = field(default_factory=queue.SimpleQueue)

    @property
    def output_names(self) -> tuple[str, ...]:
        """In the order in which a run gives all of them."""
        return tuple(self.outputs)

    @property
    def mapped_bytes(self) -> int:
        """Nothing that it could give back and bring again: what was compiled lies in the heap."""
        return 0


class OpenVinoSessions:
    """Blocking half: compile, run and drop networks."""

    def __init__(self, workers: int, threads_per_run: int) -> None:
        """A stream for each worker: one stream runs one after the other."""
        self._workers = workers
        self._options: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": workers * threads_per_run,
            "NUM_STREAMS": str(workers),
            # It would take bf16 where the processor has it, which is measured first, and only then used (`prepare_in`).
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_CPU_PINNING": False,
            "CPU_DENORMALS_OPTIMIZATION": True,
            "CACHE_MODE": "OPTIMIZE_SPEED",
        }

    def _in(self, number_format: str) -> dict[str, Any]:
        """Its options, to compute in a smaller number format where one is named."""
        return self._options | ({"INFERENCE_PRECISION_HINT": number_format} if number_format else {})

    def stop(self) -> Stop:
        """What ends a run that is given it."""
        return Stop()

    def load(self, form: PreparedForm) -> Compiled:
        """Raises: LoadFailed."""
        core = ov.Core()
        try:
            if form.optimised:
                options = self._in(form.computes_in)
                model = core.import_model(ov.tensor_from_file(form.path), _DEVICE, options)
            else:
                model = core.compile_model(form.path, _DEVICE, self._options)
        except Exception as error:
            raise LoadFailed(build_id=form.build_id, reason=_told(error)) from error
        names = {name: place for place, output in enumerate(model.outputs) for name in output.get_names()}
        can_cancel = not any(one.partial_shape.is_dynamic for one in model.inputs)
        compiled = Compiled(model, form.build_id, names, can_cancel)
        for _ in range(self._workers):
            compiled.requests.put(model.create_infer_request())
        return compiled

    def run(
        self, compiled: Compiled, inputs: Tensors, outputs: Sequence[str] | None, stop: Stop | None = None
    ) -> dict[str, Any]:
        """One inference; the arrays are the caller's. Raises: RunRefused with OpenVINO's own words; RunStopped."""
        request = compiled.requests.get()
        try:
            if stop is not None and not stop.begin(request if compiled.can_cancel else None):
                raise RunStopped(variant_id=compiled.build_id, reason="it took longer than it may")
            try:
                feeds = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
                request.start_async(feeds, share_inputs=True)  # a synchronous one of one stream cannot be cancelled
                if compiled.can_cancel and stop is not None and stop.terminate:  # before there was a run to cancel
                    request.cancel()
                request.wait()
            except Exception as error:
                if stop is not None and stop.terminate:
                    raise RunStopped(variant_id=compiled.build_id, reason="it took longer than it may") from None
                raise RunRefused(variant_id=compiled.build_id, reason=_told(error)) from error
            finally:
                if stop is not None:
                    stop.end()
            if stop is not None and stop.terminate:
                raise RunStopped(variant_id=compiled.build_id, reason="it took longer than it may")
            names = compiled.outputs if outputs is None else {name: compiled.outputs[name] for name in outputs}
            return {name: np.array(request.get_output_tensor(place).data) for name, place in names.items()}
        finally:
            compiled.requests.put(request)

    def unload(self, compiled: Compiled) -> None:
        """Drop the network and its requests. These go last: whoever goes last waits for threads of OpenVINO's, and the
        network would do so with the interpreter's lock held.
        """
        del compiled.model
        with suppress(queue.Empty):
            while True:
                compiled.requests.get_nowait()

    def fell_back_to(self, compiled: Compiled) -> str:
        """The devices that compute it, where that is not the one asked for."""
        devices = list(compiled.model.get_property("EXECUTION_DEVICES"))
        return "" if devices == [_DEVICE] else ", ".join(devices)

    def supports(self, network: Path) -> bool:
        """Whether it can be compiled: an operator that OpenVINO does not know shows when the file is read, one that the
        device has no kernel for when it is compiled.
        """
        try:
            ov.Core().compile_model(str(network), _DEVICE, self._options)
        except Exception:  # it has no exceptions of its own
            return False
        return True

    def prepare(self, source: Path, target_dir: Path) -> str:
        """Compile into an empty folder. Raises: LoadFailed when OpenVINO cannot."""
        return self.prepare_in("", source, target_dir)

    def prepare_in(self, number_format: str, source: Path, target_dir: Path) -> str:
        """As `prepare`; `number_format`: `bf16`, or empty for that of the network."""
        try:
            compiled = ov.Core().compile_model(str(source), _DEVICE, self._in(number_format))
            (target_dir / _COMPILED).write_bytes(compiled.export_model().getbuffer())
        except Exception as error:  # an operator that it does not know ...: another kind serves
            (target_dir / _COMPILED).unlink(missing_ok=True)
            raise LoadFailed(build_id=source.name, reason=_told(error)) from error
        return _COMPILED


def _told(error: Exception) -> str:
    """The last of the lines that say where in OpenVINO's code it was raised is what happened."""
    lines = [text for line in str(error).splitlines() if (text := line.strip().removeprefix("-- "))]
    return (lines[-1] if lines else type(error).__name__)[:500]
