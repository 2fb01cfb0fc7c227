"""Tries recipes on one network: writes, loads, runs and compares each result with fp32 on the same inputs, and names
the best.

Called by `modelstore.stages.variants` in a child process.
"""

import math
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from appliance.clock import NS_PER_MS, NS_PER_S, SystemClock
from appliance.domain.errors import ApplianceError, BadModel
from appliance.modelstore.orders import MakeOrder
from appliance.modelstore.sandbox import is_memory_shortage
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages import quantise
from appliance.modelstore.stages.running import Runner, largest_error
from appliance.modelstore.stages.samples import calibration_feeds

COMPARED_FULL, COMPARED_SMALLER = 8, 4
"""Inputs of a comparison at full size, and at smaller ones together."""
ATTEMPT_SECONDS_MAX = 120.0
"""Processor time; the converters are known to loop for ever on single networks."""
SOURCE_BYTES_MAX = 1_800_000_000
"""What the converters read and write must fit one protobuf."""
SIZE_SHARE_MAX = 0.9
"""Of the fp32 file; a variant that saves less is not worth having."""
ALIKE = 1.2
"""Errors within this factor count as equal; then the faster attempt is kept."""
REASON_CHARACTERS_MAX = 300


class Impossible(BadModel):
    """This precision cannot be made."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One recipe, and what came of it."""

    note: str
    path: Path
    error: float
    run_ms: float


class Bench:
    """The network in fp32, inputs, what fp32 makes of them, and the attempts so far."""

    def __init__(self, order: MakeOrder, scratch: Path, report: Callable[[float, str], None]) -> None:
        """Raises: Impossible when the weights are no fp32 to begin with."""
        self.order, self.scratch, self.report = order, scratch, report
        self.source = self._source()
        self.feeds = calibration_feeds(
            order.calibration, order.task, order.inspection, order.assets, order.calibration_samples_max
        )
        smaller = self.feeds.smaller[:: max(1, len(self.feeds.smaller) // COMPARED_SMALLER)]
        self.compared = [*self.feeds.full[:COMPARED_FULL], *smaller]
        original = Runner(self.source)
        self.expected = [original.run(feeds) for feeds in self.compared]
        self.attempts: list[Attempt] = []
        self.problems: list[str] = []
        self.now_ns = SystemClock().now_ns
        self.until_ns = self.now_ns() + round(order.seconds_max * NS_PER_S)

    def _source(self) -> Path:
        """The network with plain fp32 weights."""
        inspection = self.order.inspection
        if facts.QUANTISED & set(inspection.ops):
            raise Impossible(reason="the uploaded model is quantised already")
        if inspection.weights in ("fp16", "bf16"):
            raise Impossible(
                reason=f"the uploaded weights are {inspection.weights}; upload fp32 weights to have this made"
            )
        if inspection.size_bytes > SOURCE_BYTES_MAX:
            raise Impossible(reason="networks of this size are served as they are")
        folder = self.scratch / "source"  # a copy: the quantisers write their own files beside what they read
        folder.mkdir()
        if inspection.weights == "int8":
            quantise.widened(Path(inspection.model), folder / "model.onnx")
            return folder / "model.onnx"
        copies = [shutil.copyfile(file, folder / Path(file).name) for file in inspection.files]
        return copies[0]

    @property
    def least_error(self) -> float:
        """Of the attempts so far; infinite before the first."""
        return min((attempt.error for attempt in self.attempts), default=math.inf)

    def attempt(self, note: str, write: Callable[[Path], None]) -> float:
        """Write, load, run and compare one recipe.

        Returns its error, infinite where it failed; the failure is kept as a reason.
        """
        if self.attempts and self.now_ns() > self.until_ns:
            return math.inf
        number = len(self.attempts) + len(self.problems)
        self.report(min(0.85, 0.3 + 0.15 * number), note)
        path = self.scratch / f"attempt{number}.onnx"
        try:
            with _time_limit(ATTEMPT_SECONDS_MAX):
                write(path)
            _check_size(path, self.source)
            self.attempts.append(self._measured(note, path))
            return self.attempts[-1].error
        except Exception as error:  # the converters raise whatever they met
            if is_memory_shortage(error):
                raise
            is_plain = isinstance(error, ApplianceError | TimeoutError)
            words = str(error) if is_plain else f"the converter does not know what to do ({type(error).__name__})"
            self.problems.append(f"{note}: {words[:REASON_CHARACTERS_MAX]}")
            return math.inf

    def _measured(self, note: str, path: Path) -> Attempt:
        runner = Runner(path)
        self._check_interface(runner)
        errors, run_ns = [], []
        for feeds, expected in zip(self.compared, self.expected, strict=True):
            start_ns = self.now_ns()
            outputs = runner.run(feeds)
            run_ns.append(self.now_ns() - start_ns)
            errors.append(_float_error(outputs, expected))
        error = float(np.mean(errors))
        if not np.isfinite(error):
            raise BadModel(reason="its outputs are not finite where those of fp32 are")
        return Attempt(note, path, error, sum(run_ns) / len(run_ns) / NS_PER_MS)

    def _check_interface(self, runner: Runner) -> None:
        inspection = self.order.inspection
        inputs = {node.name for node in runner.session.get_inputs()}
        wanted = {tensor.name for tensor in inspection.inputs}, {tensor.name for tensor in inspection.outputs}
        if (inputs, set(runner.outputs)) != wanted:
            raise BadModel(reason="its inputs or outputs are not those of the original")

    def best(self) -> Attempt:
        """The most faithful attempt; among those about as faithful the fastest.

        Raises: Impossible when all failed.
        """
        if not self.attempts:
            raise Impossible(reason="; ".join(dict.fromkeys(self.problems))[: 2 * REASON_CHARACTERS_MAX])
        alike = [attempt for attempt in self.attempts if attempt.error <= ALIKE * self.least_error + 1e-6]
        return min(alike, key=lambda attempt: attempt.run_ms)


def _check_size(path: Path, source: Path) -> None:
    size, before = path.stat().st_size, sum(file.stat().st_size for file in source.parent.iterdir())
    if size > SIZE_SHARE_MAX * before:
        raise BadModel(
            reason=f"nothing gained, {size} bytes after {before}: most weights are where the converter does not go"
        )


def _float_error(outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """Relative error over the floating-point outputs; over all where there are no others, as integers are often
    indices that may jump.
    """
    floats = {name: value for name, value in expected.items() if value.dtype.kind == "f"}
    return largest_error(outputs, floats or expected)


@contextmanager
def _time_limit(cpu_seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread once this process has worked that long."""

    def stop(signum: int, frame: object) -> None:
        raise TimeoutError(f"the converter took more than {cpu_seconds:.0f} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
