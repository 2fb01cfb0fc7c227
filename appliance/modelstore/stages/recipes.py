"""Which ways of writing a network in fp16 or int8 are worth trying, and at which input sizes the best one runs.

`modelstore.stages.quantise` has the recipes, `modelstore.stages.bench` compares what they give. Runs in a child
process.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from appliance.domain.catalogue import Precision
from appliance.domain.errors import BadModel
from appliance.modelstore.orders import Inspection, MakeOrder, Size
from appliance.modelstore.stages import quantise
from appliance.modelstore.stages.bench import Attempt, Bench, Impossible
from appliance.modelstore.stages.running import Runner
from appliance.modelstore.stages.samples import synthetic_feeds

FP16_ERROR_GOOD = 0.01
"""Relative; above it more operators are kept in fp32."""


def converted(order: MakeOrder, report: Callable[[float, str], None]) -> tuple[Path, str]:
    """The file of the order's precision in its target folder, and how it came about.

    Raises: Impossible with the reason.
    """
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(order, Path(scratch), report)
        best = _half(bench) if order.precision is Precision.FP16 else _int8(bench, order.inspection)
        target = Path(order.target)
        target.mkdir(parents=True, exist_ok=True)
        kept = target / f"{order.precision.value}.onnx"
        shutil.move(best.path, kept)
    return kept, f"{best.note}; relative error of the outputs {best.error:.3g}"


def running_sizes(order: MakeOrder, path: Path, sizes: Sequence[Size | None]) -> list[Size | None]:
    """Those of `sizes` that the file runs at.

    Raises: Impossible when it runs at none.
    """
    found = [size for size in sizes if _runs_at(order, path, size)]
    if not found:
        raise Impossible(reason="it runs at no input size")
    return found


def _runs_at(order: MakeOrder, path: Path, size: Size | None) -> bool:
    try:
        Runner(path).run(next(synthetic_feeds(order.inspection, order.task, size, 1)))
    except BadModel:
        return False
    return True


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
        raise Impossible(reason=f"per-channel int8 needs opset {needed}, the model is at {inspection.opset}")
    if inspection.family == "convolution" and quantise.quantisable(bench.source, ("Conv",)):
        return _static(bench)
    if not quantise.quantisable(bench.source, ("MatMul", "Gemm")):
        raise Impossible(reason="it has no MatMul, Gemm or Conv with stored weights outside of If and Loop")
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
