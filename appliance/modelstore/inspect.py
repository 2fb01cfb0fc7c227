"""The inspect stage: from a hostile file to a normalised copy that has been run, and everything known about it.

Each rewriting step (opset conversion, folding by ONNX Runtime) is kept only when the rewritten graph computes what the one before did.
"""

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from appliance.clock import NS_PER_MS, SystemClock
from appliance.domain.catalogue import TaskSpec, TensorSpec
from appliance.domain.errors import BadModel
from appliance.modelstore import graph as facts
from appliance.modelstore import ladder, normalise
from appliance.modelstore.feeds import axes_of, extents, synthetic
from appliance.modelstore.orders import Extent, Inspection, InspectOrder, Size
from appliance.modelstore.reading import check_declared, read
from appliance.modelstore.running import Runner, TooSlow, largest_error

Report = Callable[[float, str], None]
BATCH_MAX = 8
REWRITE_ERROR_MAX = 1e-3
"""Between a graph and its rewritten form, relative: float32 with another order of sums."""
BATCH_ERROR_MAX = 1e-2


@dataclass(frozen=True, slots=True)
class Form:
    """A graph that loads, and what it computed from which inputs."""

    model: ModelProto
    runner: Runner
    inputs: tuple[TensorSpec, ...]
    axes: Mapping[str, tuple[str, ...]]
    extent: Extent
    feeds: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]


def inspect(order: InspectOrder, report: Report) -> Inspection:
    """Check `order.source`, write the normalised copy into `order.target`, and describe it.

    Raises: BadModel.
    """
    report(0.05, "reading the file")
    uploaded = read(Path(order.source), order.tensor_bytes_max)
    with tempfile.TemporaryDirectory() as scratch:
        report(0.2, "running it for the first time")
        form, notes = _normalised(uploaded, order, Path(scratch))
        report(0.5, "folding constants")
        form = _folded(form, order, Path(scratch))
        files = normalise.write(form.model, Path(order.target))
        report(0.7, "trying batches and input sizes")
        sizes, dropped = _ladder(form, order)
        described = _described(form, order.task)
    return replace(
        described,
        model=str(files[0]),
        files=tuple(map(str, files)),
        size_bytes=sum(path.stat().st_size for path in files),
        opset_uploaded=normalise.opset(uploaded),
        ir_uploaded=uploaded.ir_version,
        weights=facts.weight_format(uploaded.graph),
        ladder=sizes,
        notes=(*notes, *dropped),
    )


def _normalised(uploaded: ModelProto, order: InspectOrder, scratch: Path) -> tuple[Form, list[str]]:
    """The model at a current opset when that computes the same, else at its own."""
    converted, note = normalise.converted(uploaded)
    if converted is uploaded:
        return _tried(_tidied(uploaded, order), scratch / "own", order.task), [note] if note else []
    own: Form | None = None
    try:
        own = _tried(_tidied(uploaded, order), scratch / "own", order.task)
    except TooSlow:
        raise
    except BadModel:
        pass  # an opset that ONNX Runtime does not load: the converted form must stand for itself
    try:
        return _tried(_tidied(converted, order), scratch / "converted", order.task, own), [note]
    except BadModel:
        if own is None:
            raise
        return own, [f"opset {normalise.opset(uploaded)} kept: the converted graph computes something else"]


def _tidied(model: ModelProto, order: InspectOrder) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    normalise.tidy(copy)
    shaped = normalise.with_shapes(copy)
    check_declared(shaped.graph, order.tensor_bytes_max)
    return shaped


def _folded(form: Form, order: InspectOrder, scratch: Path) -> Form:
    """The graph with constants folded and normalisation layers merged, where ONNX Runtime's result is portable and computes the same.

    Only for plain fp32: for other formats ONNX Runtime writes its own casts into the file.
    """
    graph = form.model.graph
    formats = {tensor.data_type for tensor in facts.tensors(graph)}
    special = formats & {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT8, TensorProto.UINT8}
    if special or facts.is_quantised(graph) or facts.stored_bytes(graph) >= normalise.EMBED_BYTES_MAX:
        return form
    try:
        Runner(normalise.write(form.model, scratch / "plain")[0], write_to=scratch / "folded.onnx")
        folded = onnx.load(scratch / "folded.onnx")
        _restore_interface(folded, form.model)
        if any(node.domain not in normalise.STANDARD_DOMAINS for node in facts.nodes(folded.graph)):
            return form
        return _tried(_tidied(folded, order), scratch / "tidied", order.task, form)
    except BadModel:
        return form


def _restore_interface(folded: ModelProto, original: ModelProto) -> None:
    """ONNX Runtime may forget names of free dimensions and metadata."""
    for field in ("input", "output"):
        del getattr(folded.graph, field)[:]
        getattr(folded.graph, field).extend(getattr(original.graph, field))
    del folded.metadata_props[:]
    folded.metadata_props.extend(original.metadata_props)


def _tried(model: ModelProto, folder: Path, task: TaskSpec, reference: Form | None = None) -> Form:
    """Load the graph and run it, on the inputs of `reference` if given: then it must also compute the same.

    Raises: BadModel.
    """
    runner = Runner(normalise.write(model, folder)[0])
    inputs = tuple(facts.spec(value) for value in model.graph.input)
    axes = axes_of(model.graph.input, task)
    if reference is not None:
        outputs = runner.run(reference.feeds)
        if largest_error(outputs, reference.outputs) > REWRITE_ERROR_MAX:
            raise BadModel(reason="the rewritten graph computes something else")
        return replace(reference, model=model, runner=runner, outputs=outputs)
    first: BadModel | None = None
    for extent in extents(inputs, axes, task):
        feeds = synthetic(inputs, axes, task, extent)
        try:
            return Form(model, runner, inputs, axes, extent, feeds, runner.run(feeds))
        except TooSlow:
            raise
        except BadModel as error:
            first = first or error
    raise first or BadModel(reason="it cannot be run")


def _described(form: Form, task: TaskSpec) -> Inspection:
    """What can be read off the graph and its trial; the fields about files are filled in by the caller."""
    graph = form.model.graph
    return Inspection(
        model="",
        files=(),
        size_bytes=0,
        inputs=form.inputs,
        outputs=tuple(facts.spec(value) for value in graph.output),
        axes=form.axes,
        opset=normalise.opset(form.model),
        opset_uploaded=0,
        ir_uploaded=0,
        ops=facts.histogram(graph),
        family=facts.family(graph),
        weights="",
        weights_bytes=facts.stored_bytes(graph),
        parameters=sum(math.prod(t.dims) for t in facts.tensors(graph) if t.data_type in facts.WEIGHT_FORMATS),
        metadata_props={entry.key: entry.value for entry in form.model.metadata_props},
        batch_max=BATCH_MAX if _is_batchable(form, task) else 1,
        trial=form.extent,
        run_ms=_run_ms(form),
    )


def _run_ms(form: Form) -> float:
    clock = SystemClock()
    start_ns = clock.now_ns()
    form.runner.run(form.feeds)
    return (clock.now_ns() - start_ns) / NS_PER_MS


def _is_batchable(form: Form, task: TaskSpec) -> bool:
    """Whether two inputs stacked on axis 0 give the two answers stacked on axis 0; declared shapes are not to be trusted here."""
    batched = [tensor.name for tensor in form.inputs if tensor.name not in task.constants]
    free = {tensor.name: bool(tensor.shape) and tensor.shape[0] < 0 for tensor in form.inputs}
    if task.state or not all(free[name] and form.axes[name][0] == "batch" for name in batched):
        return False
    other = synthetic(form.inputs, form.axes, task, form.extent, seed=1)
    both = {
        name: np.concatenate([value, other[name]]) if name in batched else value for name, value in form.feeds.items()
    }
    try:
        second, together = form.runner.run(other), form.runner.run(both)
    except BadModel:
        return False
    if any(value.ndim == 0 or value.shape[0] != 1 for value in form.outputs.values()):
        return False
    expected = {name: np.concatenate([value, second[name]]) for name, value in form.outputs.items()}
    return largest_error(together, expected) <= BATCH_ERROR_MAX


def _ladder(form: Form, order: InspectOrder) -> tuple[tuple[Size, ...], tuple[str, ...]]:
    """The sizes that run, and a note for each that does not."""
    if not ladder.has_free_size(form.inputs, form.axes, order.task):
        return (), ()
    full = Size(form.extent.height, form.extent.width)
    kept, dropped = [full], []
    for size in ladder.rungs(full, order.task.image, order.ladder_max)[1:]:
        extent = replace(form.extent, height=size.height, width=size.width)
        try:
            form.runner.run(synthetic(form.inputs, form.axes, order.task, extent))
            kept.append(size)
        except TooSlow:
            raise
        except BadModel as error:
            dropped.append(f"no input size {size.height}x{size.width}: {error}")
    return tuple(kept), tuple(dropped)
