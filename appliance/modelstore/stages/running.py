"""Opens and runs ONNX files in a stage's child process, one thread, with ONNX Runtime's complaints turned into plain
ones.

Not the way serving runs a model (that is the processor's business, and `Measure` profiles that): this answers whether a
file runs at all and what it computes.
"""

import resource
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnxruntime as ort

from appliance.domain.errors import BadModel
from appliance.domain.wording import plain
from appliance.modelstore.sandbox import is_memory_shortage

RUN_SECONDS_MAX = 30.0
"""Processor time of one run on one thread; a network that needs longer cannot be served here."""
WATCH_EVERY_S = 0.2
ort.set_default_logger_severity(4)


class TooSlow(BadModel):
    """One run did not end in time: other inputs will not help."""


class DoesNotRun(BadModel):
    """The network loads, and a run on these inputs failed: it may run on others."""


class Runner:
    """One session; `run` returns arrays of its own."""

    def __init__(self, model: Path | str | bytes, write_to: Path | None = None) -> None:
        """Load a file, or a serialised model. With `write_to`, apply only optimisations that hold on every machine and
        write the result there.

        Raises: BadModel.
        """
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 4
        if write_to is not None:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.optimized_model_filepath = str(write_to)
        with _plain_errors("ONNX Runtime cannot load it"):
            self.session = ort.InferenceSession(
                str(model) if isinstance(model, Path) else model, options, providers=["CPUExecutionProvider"]
            )
        self.outputs = tuple(output.name for output in self.session.get_outputs())

    def run(self, feeds: Mapping[str, np.ndarray], cpu_seconds_max: float = RUN_SECONDS_MAX) -> dict[str, np.ndarray]:
        """All outputs by name.

        Raises: DoesNotRun when ONNX Runtime refuses the inputs or fails, TooSlow when it does not end in time.
        """
        options = ort.RunOptions()
        options.log_severity_level = 4
        try:
            with _watched(options, cpu_seconds_max), _plain_errors("a run failed"):
                return dict(zip(self.outputs, self.session.run(None, dict(feeds), options), strict=True))
        except BadModel as error:
            if options.terminate:
                raise TooSlow(reason=f"one run took more than {cpu_seconds_max:.0f} s of processor time") from None
            raise DoesNotRun(reason=error.reason) from error


@contextmanager
def _watched(options: ort.RunOptions, cpu_seconds_max: float) -> Iterator[None]:
    """Have a run broken off once this process has worked that long: a wall clock would blame the model for a busy
    box.
    """
    is_over = threading.Event()
    until_s = _cpu_s() + cpu_seconds_max

    def watch() -> None:
        while not is_over.wait(WATCH_EVERY_S):
            if _cpu_s() > until_s:
                options.terminate = True
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _plain_errors(what: str) -> Iterator[None]:
    """ONNX Runtime's exceptions share no base class of their own."""
    try:
        yield
    except Exception as error:
        if is_memory_shortage(error):
            raise MemoryError(str(error)) from error
        raise BadModel(reason=f"{what}: {plain(error)}") from error


def largest_error(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> float:
    """The worst relative error of any output: L2 norm of the difference over that of the reference, share of differing
    integers.

    Infinite where shapes differ or one side is finite where the other is not.
    """
    return max((_error(outputs[name], expected) for name, expected in reference.items()), default=0.0)


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    if got.shape != expected.shape:
        return float("inf")
    if expected.size == 0:
        return 0.0
    if expected.dtype.kind != "f":
        return float(np.mean(got != expected))
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    wanted, seen = expected[finite].astype(np.float64), got[finite].astype(np.float64)
    return float(np.linalg.norm(seen - wanted) / max(float(np.linalg.norm(wanted)), 1e-9))
