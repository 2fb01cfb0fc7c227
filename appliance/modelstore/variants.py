"""The make stage: one precision of a normalised network at every size of its ladder.

Which recipes are worth trying is decided here, `modelstore.quantise` has the recipes and `modelstore.bench` compares what they give.
How good the kept one is in the task's own words is measured afterwards by `modelstore.accuracy`.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from appliance.domain.catalogue import Precision
from appliance.domain.errors import BadModel
from appliance.modelstore import quantise
from appliance.modelstore.bench import Attempt, Bench, Impossible
from appliance.modelstore.ladder import variant_name
from appliance.modelstore.orders import Inspection, Made, MadeVariant, MakeOrder, Size
from appliance.modelstore.running import Runner
from appliance.modelstore.samples import synthetic_feeds

Report = Callable[[float, str], None]
FP16_ERROR_GOOD = 0.01
"""Relative; above it more operators are kept in fp32."""


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
    bench = Bench(order, scratch, report)
    best = _half(bench) if order.precision is Precision.FP16 else _int8(bench, order.inspection)
    target = Path(order.target)
    target.mkdir(parents=True, exist_ok=True)
    kept = target / f"{order.precision.value}.onnx"
    shutil.move(best.path, kept)
    return kept, f"{best.note}; relative error of the outputs {best.error:.3g}"


def _fp32_note(weights: str) -> str:
    if weights == "fp32":
        return "as uploaded"
    return f"as uploaded: {weights} weights, computed in fp32 where the processor has nothing else"


# -- recipes -----------------------------------------------------------------------------------------------------------


def _half(bench: Bench) -> Attempt:
    """fp16, keeping more operators in fp32 when the outputs stray."""
    few = quantise.FP16_ALWAYS_FP32
    more = (*few, *quantise.FP16_SENSITIVE)
    if bench.attempt("fp16 weights", partial(quantise.half, bench.source, keep_fp32=few)) > FP16_ERROR_GOOD:
        note = "fp16 weights, sensitive operators in fp32"
        bench.attempt(note, partial(quantise.half, bench.source, keep_fp32=more))
    return bench.best()


def _int8(bench: Bench, inspection: Inspection) -> Attempt:
    """Static for convolution nets, dynamic for the others."""
    if inspection.opset < quantise.OPSET_PER_CHANNEL:
        needed = quantise.OPSET_PER_CHANNEL
        raise Impossible(f"per-channel int8 needs opset {needed}, the model is at {inspection.opset}")
    if inspection.family == "convolution" and quantise.quantisable(bench.source, ("Conv",)):
        return _static(bench)
    if not quantise.quantisable(bench.source, ("MatMul", "Gemm")):
        raise Impossible("it has no MatMul, Gemm or Conv with stored weights outside of If and Loop")
    bench.attempt(
        "int8 weights of MatMul, activations quantised as they come", partial(quantise.dynamic_int8, bench.source)
    )
    return bench.best()


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Choices of static quantisation."""

    is_clipped: bool
    excluded: tuple[str, ...]
    """Nodes that stay in fp32."""


def _static(bench: Bench) -> Attempt:
    """Greedy over the choices that matter: value ranges, outermost layers, depthwise convolutions."""
    bench.report(0.2, f"calibrating with {bench.feeds.words}")
    ranges = quantise.Ranges(bench.source, bench.feeds.all())
    deep, ends = quantise.depthwise(bench.source), quantise.ends(bench.source)
    recipe = _Recipe(True, tuple(deep))
    _try_static(bench, ranges, recipe)
    recipe = _better(bench, ranges, recipe, replace(recipe, is_clipped=False))
    if ends:
        recipe = _better(bench, ranges, recipe, replace(recipe, excluded=(*deep, *ends)))
    if deep:
        shallow = tuple(name for name in recipe.excluded if name not in deep)
        _try_static(bench, ranges, replace(recipe, excluded=shallow))
    return bench.best()


def _better(bench: Bench, ranges: quantise.Ranges, so_far: _Recipe, other: _Recipe) -> _Recipe:
    """The recipe that later ones build on."""
    before = bench.least_error
    return other if _try_static(bench, ranges, other) < before else so_far


def _try_static(bench: Bench, ranges: quantise.Ranges, recipe: _Recipe) -> float:
    clipped = "without the rarest values" if recipe.is_clipped else "with the extremes"
    kept = f", {len(recipe.excluded)} layers in fp32" if recipe.excluded else ""
    note = f"int8 weights and activations, ranges {clipped} of {bench.feeds.words}{kept}"
    is_clipped, excluded = recipe.is_clipped, recipe.excluded
    return bench.attempt(
        note, partial(quantise.static_int8, bench.source, ranges=ranges, is_clipped=is_clipped, exclude=excluded)
    )


# -- rungs -------------------------------------------------------------------------------------------------------------


def _rungs(order: MakeOrder, path: Path, note: str) -> tuple[MadeVariant, ...]:
    """The variants on one file: one for each size of the ladder that it runs at."""
    inspection = order.inspection
    sizes: Sequence[Size | None] = inspection.ladder or (None,)
    if order.precision is not Precision.FP32:  # fp32 ran at every size while it was inspected
        sizes = [size for size in sizes if _runs_at(order, path, size)]
    if not sizes:
        raise Impossible("it runs at no input size")
    files = inspection.files if order.precision is Precision.FP32 else (str(path),)
    full = inspection.ladder[0] if inspection.ladder else None
    return tuple(
        MadeVariant(
            name=variant_name(order.precision, size, full),
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
        for size in sizes
    )


def _runs_at(order: MakeOrder, path: Path, size: Size | None) -> bool:
    try:
        Runner(path).run(next(synthetic_feeds(order.inspection, order.task, size, 1)))
    except BadModel:
        return False
    return True
