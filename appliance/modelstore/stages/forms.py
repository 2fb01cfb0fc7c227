"""Forms of one network on the way from the upload to the normalised file: each is loaded and run before it counts.

Runs in a child process.

A rewritten form (another opset, constants folded) is kept only when it computes what the one before did, on the same
inputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from appliance.domain.catalogue import TaskSpec, TensorSpec
from appliance.domain.errors import BadModel
from appliance.modelstore.orders import Extent, InspectOrder
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages import normalise
from appliance.modelstore.stages.feeds import axes_of, extents, synthetic, with_carried_batch
from appliance.modelstore.stages.reading import check_declared
from appliance.modelstore.stages.running import DoesNotRun, Runner, TooSlow, largest_error

BATCH_ERROR_MAX = 1e-2
BATCH_SYMBOL = "batch"
REWRITE_ERROR_MAX = 1e-3
"""Between a graph and its rewritten form, relative: float32 with another order of sums."""


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


def normalised(uploaded: ModelProto, order: InspectOrder, scratch: Path) -> tuple[Form, list[str]]:
    """The model at a current opset when that computes the same, else at its own."""
    converted, note = normalise.converted(uploaded)
    if converted is uploaded:
        return tried(_tidied(uploaded, order), scratch / "own", order.task), [note] if note else []
    own: Form | None = None
    reason = ""
    try:
        own = tried(_tidied(uploaded, order), scratch / "own", order.task)
    except TooSlow:
        raise
    except DoesNotRun as error:
        reason = error.reason
    except BadModel:
        pass  # an opset that ONNX Runtime does not load: the converted form must stand for itself
    try:
        return tried(_tidied(converted, order), scratch / "converted", order.task, own), [note]
    except BadModel:
        if own is None and reason:
            raise DoesNotRun(reason=reason) from None  # other inputs may do
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


def folded(form: Form, order: InspectOrder, scratch: Path) -> Form:
    """The graph with constants folded and normalisation layers merged, where ONNX Runtime's result is portable and
    computes the same.

    Only for plain fp32: for other formats ONNX Runtime writes its own casts into the file.
    """
    graph = form.model.graph
    formats = {tensor.data_type for tensor in facts.tensors(graph)}
    special = formats & {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT8, TensorProto.UINT8}
    if special or facts.is_quantised(graph):
        return form
    try:
        Runner(normalise.write(form.model, scratch / "plain")[0], write_to=scratch / "folded.onnx")
        folded = onnx.load(scratch / "folded.onnx")
        _restore_interface(folded, form.model)
        if any(node.domain not in normalise.STANDARD_DOMAINS for node in facts.nodes(folded.graph)):
            return form
        return tried(_tidied(folded, order), scratch / "tidied", order.task, form)
    except BadModel:
        return form


def _restore_interface(folded: ModelProto, original: ModelProto) -> None:
    """ONNX Runtime may forget names of free dimensions and metadata."""
    for field in ("input", "output"):
        del getattr(folded.graph, field)[:]
        getattr(folded.graph, field).extend(getattr(original.graph, field))
    del folded.metadata_props[:]
    folded.metadata_props.extend(original.metadata_props)


def tried(model: ModelProto, folder: Path, task: TaskSpec, reference: Form | None = None) -> Form:
    """Write the graph into `folder`, load it, and as `ran`."""
    runner = Runner(normalise.write(model, folder)[0])
    return ran(model, runner, task, reference)


def ran(model: ModelProto, runner: Runner, task: TaskSpec, reference: Form | None = None) -> Form:
    """Run a loaded graph, on the inputs of `reference` if given: then it must also compute the same.

    Raises: BadModel.
    """
    inputs = tuple(facts.spec(value) for value in model.graph.input)
    axes = axes_of(model.graph.input, task)
    if reference is not None:
        outputs = runner.run(reference.feeds)
        if largest_error(outputs, reference.outputs) > REWRITE_ERROR_MAX:
            raise BadModel(reason="the rewritten graph computes something else")
        return replace(reference, model=model, runner=runner, outputs=outputs)
    first: BadModel | None = None
    for roles in filter(None, (axes, with_carried_batch(axes))):
        for extent in extents(inputs, roles, task):
            feeds = synthetic(inputs, roles, task, extent)
            try:
                return Form(model, runner, inputs, roles, extent, feeds, runner.run(feeds))
            except TooSlow:
                raise
            except BadModel as error:
                first = first or error
    raise first or BadModel(reason="it cannot be run")


def batch_freed(form: Form, task: TaskSpec, scratch: Path) -> Form:
    """The graph with a free batch axis where it declares a batch of 1 but does not depend on it: most exporters fix
    it by default.
    """
    names = set(_batched(form, task))
    fixed = {tensor.name for tensor in form.inputs if form.axes[tensor.name][:1] == ("batch",) and tensor.shape[0] == 1}
    if task.state or not names or names != fixed:
        return form
    model = ModelProto()
    model.CopyFrom(form.model)
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape
        if (value.name in names or value.name in form.outputs) and shape.dim and shape.dim[0].dim_value == 1:
            shape.dim[0].dim_param = BATCH_SYMBOL
    try:
        freed = tried(normalise.with_shapes(model), scratch / "freed", task, form)
    except BadModel:
        return form
    freed = replace(freed, inputs=tuple(facts.spec(value) for value in model.graph.input))
    return freed if is_batchable(freed, task) else form


def _batched(form: Form, task: TaskSpec) -> list[str]:
    """Inputs that have a row for each item: all but constants and optional ones that are the same for all items."""
    shared = {name for name in task.defaults if "batch" not in form.axes.get(name, ())} | task.constants.keys()
    return [tensor.name for tensor in form.inputs if tensor.name not in shared]


def is_batchable(form: Form, task: TaskSpec) -> bool:
    """Whether two inputs stacked on axis 0 give the two answers stacked on axis 0; declared shapes are not to be
    trusted here.
    """
    batched = _batched(form, task)
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
