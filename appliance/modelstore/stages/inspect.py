"""The inspect stage: from a hostile file to a normalised copy that has been run, and everything known about it."""

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import ModelProto

from appliance.domain.catalogue import TaskSpec
from appliance.domain.errors import BadModel
from appliance.modelstore.orders import Inspection, InspectOrder, Size
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages import ladder, normalise
from appliance.modelstore.stages.feeds import synthetic
from appliance.modelstore.stages.forms import Form, batch_freed, folded, is_batchable, normalised, ran
from appliance.modelstore.stages.reading import check_declared, read
from appliance.modelstore.stages.running import DoesNotRun, Runner, TooSlow
from appliance.modelstore.stages.trial_inputs import sampled, trial_inputs
from appliance.tasks.metadata import plain_props

Report = Callable[[float, str], None]
TIMED_RUNS, TIMED_S = 3, 0.5
"""Runs that are timed, and the seconds of processor time after which no further one begins."""
BATCH_NOTE = "a batch of 1 was declared; several inputs at once give the same answers, so batches are free now"


def inspect(order: InspectOrder, report: Report) -> Inspection:
    """Check `order.source`, write the normalised copy into `order.target`, and describe it.

    Where the inputs of a trial run do not fit the network, others are tried (`trial_inputs`).

    Raises: BadModel.
    """
    report(0.05, "reading the file")
    uploaded, task = _opened(order)
    sample = sampled(uploaded.graph, task, order.calibration, order.assets)
    reasons: list[str] = []  # the errors themselves would keep a session of each attempt
    for inputs in trial_inputs(uploaded.graph, task, sample):
        if reasons:
            uploaded, task = _opened(order)  # the last attempt has rewritten it
        tried = replace(task, index_limits=inputs.index_limits, examples=inputs.examples)
        try:
            return _inspected(uploaded, replace(order, task=tried), report)
        except DoesNotRun as error:
            reasons.append(error.reason)
    advice = "" if sample else "; if it takes certain values only, add inputs of real use (calibration/)"
    if order.calibration and not sample:
        advice += "; those that came could not be read"
    raise DoesNotRun(reason=reasons[0] + advice)


def _opened(order: InspectOrder) -> tuple[ModelProto, TaskSpec]:
    """The upload, its optional inputs made plain ones, and the task with what they hold where nothing is given.

    Raises: BadModel.
    """
    uploaded, task = read(Path(order.source), order.tensor_bytes_max), order.task
    defaults = {**normalise.take_defaults(uploaded), **task.defaults}
    fed = {value.name for value in uploaded.graph.input} - task.supplied.difference(task.defaults)
    return uploaded, replace(task, defaults={name: one for name, one in defaults.items() if name in fed})


def _inspected(uploaded: ModelProto, order: InspectOrder, report: Report) -> Inspection:
    """Raises: BadModel."""
    origin = normalise.opset(uploaded), uploaded.ir_version, facts.weight_format(uploaded.graph)
    report(0.2, "running it for the first time")
    if facts.stored_bytes(uploaded.graph) > order.rewrite_bytes_max:
        files = _written_apart(uploaded, Path(order.target))
        del uploaded  # and with it the weights
        model = _with_shapes_in_place(files[0], order)
        form, notes = (
            ran(model, Runner(files[0]), order.task),
            ["a large network: kept as it is, weights in a file of their own"],
        )
    else:
        form, notes = _rewritten(uploaded, order, report)
        files = normalise.write(form.model, Path(order.target))
    report(0.7, "trying batches and input sizes")
    sizes, dropped = _ladder(form, order)
    return replace(
        _described(form, order),
        model=str(files[0]),
        files=tuple(map(str, files)),
        size_bytes=sum(path.stat().st_size for path in files),
        opset_uploaded=origin[0],
        ir_uploaded=origin[1],
        weights=origin[2],
        ladder=sizes,
        notes=(*notes, *dropped),
        index_limits=order.task.index_limits,
        examples=order.task.examples,
        defaults=order.task.defaults,
    )


def _rewritten(uploaded: ModelProto, order: InspectOrder, report: Report) -> tuple[Form, list[str]]:
    """At a current opset, constants folded, several inputs at once where the network can."""
    with tempfile.TemporaryDirectory() as scratch:
        form, notes = normalised(uploaded, order, Path(scratch))
        report(0.5, "folding constants")
        form = folded(form, order, Path(scratch))
        freed = batch_freed(form, order.task, Path(scratch))
        return freed, notes if freed is form else [*notes, BATCH_NOTE]


def _written_apart(uploaded: ModelProto, target: Path) -> tuple[Path, ...]:
    """Tidied in place and written with external weights: every copy of the proto would cost as much memory as the
    network.
    """
    normalise.tidy(uploaded)
    return normalise.write(uploaded, target, is_external=True)


def _with_shapes_in_place(path: Path, order: InspectOrder) -> ModelProto:
    """Infer shapes in a file whose weights lie apart; the weights are not read."""
    model = normalise.with_shapes(onnx.load(path, load_external_data=False))
    check_declared(model.graph, order.tensor_bytes_max)
    path.write_bytes(model.SerializeToString())
    return model


def _described(form: Form, order: InspectOrder) -> Inspection:
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
        metadata_props=plain_props({entry.key: entry.value for entry in form.model.metadata_props}),
        batch_max=order.batch_max if is_batchable(form, order.task) else 1,
        trial=form.extent,
        run_ms=_run_ms(form),
    )


def _run_ms(form: Form) -> float:
    """Return the processor time of the quickest of a few runs, which others on the machine hardly change."""
    times_s: list[float] = []
    begin_s = time.process_time()
    while len(times_s) < TIMED_RUNS and time.process_time() - begin_s < TIMED_S:
        start_s = time.process_time()
        form.runner.run(form.feeds)
        times_s.append(time.process_time() - start_s)
    return 1000 * min(times_s)


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
