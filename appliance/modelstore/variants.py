"""The make stage: one precision of a normalised network at every size of its ladder.

Several recipes are tried, each result is loaded, run and compared with fp32 on real inputs, and the most faithful is kept. How good it
is in the task's own words is measured afterwards by `modelstore.accuracy`.
"""

import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from appliance.clock import NS_PER_MS, NS_PER_S, SystemClock
from appliance.domain.catalogue import Precision
from appliance.domain.errors import BadModel
from appliance.modelstore import graph as facts
from appliance.modelstore import quantise
from appliance.modelstore.ladder import variant_name
from appliance.modelstore.orders import Made, MadeVariant, MakeOrder, Size
from appliance.modelstore.running import Runner, largest_error
from appliance.modelstore.samples import calibration_feeds, synthetic_feeds
from appliance.modelstore.sandbox import is_memory_shortage

Report = Callable[[float, str], None]
COMPARED_INPUTS = 8
FP16_ERROR_GOOD = 0.01
SIZE_SHARE_MAX = 0.9
"""Of the fp32 file; a variant that saves less is not worth having."""
ALIKE = 1.2
"""Errors within this factor count as equal; then the faster attempt is kept."""


class Impossible(Exception):
    """This precision cannot be made; the message is for the tenant."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One recipe, and what came of it."""

    note: str
    path: Path
    error: float
    run_ms: float


def make(order: MakeOrder, report: Report) -> Made:
    """Make every rung of `order.precision`; an empty answer with the reason where it cannot be made."""
    try:
        with tempfile.TemporaryDirectory() as scratch:
            path, note = _made_file(order, Path(scratch), report)
        report(0.9, "trying every input size")
        return Made(_rungs(order, path, note))
    except (Impossible, BadModel) as error:
        return Made((), f"{order.precision.value}: {error}")


def _made_file(order: MakeOrder, scratch: Path, report: Report) -> tuple[Path, str]:
    """The file of this precision, and how it came about."""
    if order.precision is Precision.FP32:
        return Path(order.inspection.model), _fp32_note(order.inspection.weights)
    bench = _Bench(order, scratch, report)
    best = bench.half() if order.precision is Precision.FP16 else bench.int8()
    target = Path(order.target)
    target.mkdir(parents=True, exist_ok=True)
    kept = target / f"{order.precision.value}.onnx"
    shutil.move(best.path, kept)
    return kept, f"{best.note}; relative error of the outputs {best.error:.3g}"


def _fp32_note(weights: str) -> str:
    return (
        "as uploaded"
        if weights == "fp32"
        else f"as uploaded: {weights} weights, computed in fp32 where the processor has nothing else"
    )


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Choices of static quantisation."""

    is_clipped: bool
    excluded: tuple[str, ...]
    """Nodes that stay in fp32."""


class _Bench:
    """Tries recipes on one network and measures each against fp32 on the same inputs."""

    def __init__(self, order: MakeOrder, scratch: Path, report: Report) -> None:
        inspection = order.inspection
        if facts.QUANTISED & set(inspection.ops):
            raise Impossible("the uploaded model is quantised already")
        if inspection.weights in ("fp16", "bf16"):
            raise Impossible(f"the uploaded weights are {inspection.weights}; upload fp32 weights to have this made")
        if len(inspection.files) > 1:
            raise Impossible("networks above 2 GB are served as they are")
        self.order, self.scratch, self.report = order, scratch, report
        self.source = self._source()
        self.feeds, self.fed = calibration_feeds(
            order.calibration, order.task, inspection, order.assets, order.calibration_samples_max
        )
        original = Runner(self.source)
        self.expected = [original.run(feeds) for feeds in self.feeds[:COMPARED_INPUTS]]
        self.attempts: list[Attempt] = []
        self.problems: list[str] = []
        self.now_ns = SystemClock().now_ns
        self.until_ns = self.now_ns() + round(order.seconds_max * NS_PER_S)

    def _source(self) -> Path:
        """The network with plain fp32 weights."""
        source = Path(self.order.inspection.model)
        if self.order.inspection.weights != "int8":
            return source
        plain = self.scratch / "widened.onnx"
        quantise.widened(source, plain)
        return plain

    def half(self) -> Attempt:
        """fp16, keeping more and more operators in fp32 while the outputs stray."""
        for number, kept in enumerate(
            (quantise.FP16_ALWAYS_FP32, (*quantise.FP16_ALWAYS_FP32, *quantise.FP16_SENSITIVE))
        ):
            note = "fp16 weights" if number == 0 else "fp16 weights, sensitive operators in fp32"
            self._try(note, partial(quantise.half, self.source, keep_fp32=kept))
            if self.attempts and self.attempts[-1].error <= FP16_ERROR_GOOD:
                break
        return self._best()

    def int8(self) -> Attempt:
        """Static for convolution nets, dynamic for the others."""
        if self.order.inspection.opset < quantise.OPSET_PER_CHANNEL:
            raise Impossible(
                f"per-channel int8 needs opset {quantise.OPSET_PER_CHANNEL}, the model is at {self.order.inspection.opset}"
            )
        if self.order.inspection.family == "convolution" and quantise.quantisable(self.source, ("Conv",)):
            return self._static()
        if not quantise.quantisable(self.source, ("MatMul", "Gemm")):
            raise Impossible("it has no MatMul, Gemm or Conv with stored weights outside of If and Loop")
        self._try(
            "int8 weights of MatMul, activations quantised as they come",
            partial(quantise.dynamic_int8, self.source),
        )
        return self._best()

    def _static(self) -> Attempt:
        self.report(0.2, f"calibrating with {self.fed}")
        ranges = quantise.Ranges(self.source, self.feeds)
        deep, ends = quantise.depthwise(self.source), quantise.ends(self.source)
        recipe = _Recipe(True, tuple(deep))
        self._try_static(ranges, recipe)
        recipe = self._better(ranges, recipe, replace(recipe, is_clipped=False))
        if ends:
            recipe = self._better(ranges, recipe, replace(recipe, excluded=(*deep, *ends)))
        if deep:
            self._try_static(
                ranges, replace(recipe, excluded=tuple(name for name in recipe.excluded if name not in deep))
            )
        return self._best()

    def _better(self, ranges: quantise.Ranges, so_far: "_Recipe", other: "_Recipe") -> "_Recipe":
        """The recipe that later ones build on."""
        best = min((attempt.error for attempt in self.attempts), default=math.inf)
        self._try_static(ranges, other)
        return other if self.attempts and self.attempts[-1].error < best else so_far

    def _try_static(self, ranges: quantise.Ranges, recipe: "_Recipe") -> None:
        clipped = "without the rarest values" if recipe.is_clipped else "with the extremes"
        kept = f", {len(recipe.excluded)} layers in fp32" if recipe.excluded else ""
        note = f"int8 weights and activations, ranges {clipped} of {self.fed}{kept}"
        write = partial(
            quantise.static_int8, self.source, ranges=ranges, is_clipped=recipe.is_clipped, exclude=recipe.excluded
        )
        self._try(note, write)

    def _try(self, note: str, write: Callable[[Path], None]) -> None:
        """Write, load, run and compare one attempt; a failure is kept as a reason."""
        if self.attempts and self.now_ns() > self.until_ns:
            return
        number = len(self.attempts) + len(self.problems)
        self.report(min(0.85, 0.3 + 0.15 * number), note)
        path = self.scratch / f"attempt{number}.onnx"
        try:
            write(path)
            self._check_size(path)
            self.attempts.append(self._measured(note, path))
        except Exception as error:  # the converters raise whatever they met
            if is_memory_shortage(error):
                raise
            self.problems.append(
                f"{note}: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
            )

    def _check_size(self, path: Path) -> None:
        size, before = path.stat().st_size, self.source.stat().st_size
        if size > SIZE_SHARE_MAX * before:
            raise BadModel(
                reason=f"nothing gained: {size} bytes after {before}; most weights are out of the converter's reach"
            )

    def _measured(self, note: str, path: Path) -> Attempt:
        runner = Runner(path)
        _check_interface(runner, self.order)
        errors, run_ns = [], []
        for feeds, expected in zip(self.feeds, self.expected, strict=False):
            start_ns = self.now_ns()
            outputs = runner.run(feeds)
            run_ns.append(self.now_ns() - start_ns)
            errors.append(_float_error(outputs, expected))
        error = float(np.mean(errors))
        if not np.isfinite(error):
            raise BadModel(reason="its outputs are not finite where those of fp32 are")
        return Attempt(note, path, error, min(run_ns) / NS_PER_MS)

    def _best(self) -> Attempt:
        """The most faithful attempt; among those about as faithful the fastest."""
        if not self.attempts:
            raise Impossible("; ".join(self.problems)[:600])
        least = min(attempt.error for attempt in self.attempts)
        alike = [attempt for attempt in self.attempts if attempt.error <= ALIKE * least + 1e-6]
        return min(alike, key=lambda attempt: attempt.run_ms)


def _float_error(outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """Relative error over the floating-point outputs; over all where there are no others, as integers are often indices that may jump."""
    floats = {name: value for name, value in expected.items() if value.dtype.kind == "f"}
    return largest_error(outputs, floats or expected)


def _check_interface(runner: Runner, order: MakeOrder) -> None:
    names = {node.name for node in runner.session.get_inputs()}
    if names != {tensor.name for tensor in order.inspection.inputs} or set(runner.outputs) != {
        t.name for t in order.inspection.outputs
    }:
        raise BadModel(reason="its inputs or outputs are not those of the original")


def _rungs(order: MakeOrder, path: Path, note: str) -> tuple[MadeVariant, ...]:
    """The variants on one file: one for each size of the ladder that it runs at."""
    inspection = order.inspection
    files = inspection.files if order.precision is Precision.FP32 else (str(path),)
    sizes: Sequence[Size | None] = inspection.ladder or (None,)
    runner = (
        None if order.precision is Precision.FP32 else Runner(path)
    )  # fp32 ran at every size while it was inspected
    made = []
    for size in sizes:
        if runner is not None:
            try:
                runner.run(next(synthetic_feeds(inspection, order.task, size, 1)))
            except BadModel:
                continue
        made.append(
            MadeVariant(
                name=variant_name(order.precision, size, sizes[0]),
                precision=order.precision,
                path=str(path),
                size_bytes=sum(Path(file).stat().st_size for file in files),
                inputs=inspection.inputs,
                outputs=inspection.outputs,
                height=size.height if size else None,
                width=size.width if size else None,
                batch_max=inspection.batch_max,
                files=files,
                notes=note,
            )
        )
    if not made:
        raise Impossible("it runs at no input size")
    return tuple(made)
