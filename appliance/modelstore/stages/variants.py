"""The make stage: one precision of a normalised network at every size of its ladder.

The upload's own is the normalised file itself; how other precisions are made says `modelstore.stages.recipes`. What was
made is reviewed here as well: a child of its own would take a second only to start.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from appliance.domain.errors import BadModel
from appliance.modelstore.orders import Made, MadeVariant, MakeOrder, Reviewed, ReviewOrder, Size
from appliance.modelstore.stages.ladder import variant_name


def make(order: MakeOrder, report: Callable[[float, str], None]) -> Made:
    """Make every rung of `order.precision`; an empty answer with the reason where it cannot be made."""
    inspection = order.inspection
    sizes: Sequence[Size | None] = inspection.ladder or (None,)
    if order.precision is inspection.precision:  # it ran at every size while it was inspected
        rungs = _rungs(order, inspection.files, _note(inspection.weights), sizes)
        return Made(rungs, reviewed=_reviewed(order, inspection.model, report))
    from appliance.modelstore.stages.recipes import converted, running_sizes

    try:
        path, note = converted(order, report)
        report(0.9, "trying every input size")
        rungs = _rungs(order, (str(path),), note, running_sizes(order, path, sizes))
        return Made(rungs, reviewed=_reviewed(order, str(path), report))
    except BadModel as error:
        return Made((), str(error))


def _reviewed(order: MakeOrder, path: str, report: Callable[[float, str], None]) -> Reviewed:
    """A file that cannot be reviewed has a hazard."""
    from appliance.modelstore.stages.review import review

    try:
        inspection = order.inspection
        return review(ReviewOrder(path, inspection.inputs, inspection.axes, order.task, inspection.trial), report)
    except Exception as error:  # whatever onnx raises for a graph that it does not understand
        reason = f"it could not be reviewed: {type(error).__name__}"
        return Reviewed((reason,), dependence=reason)


def _note(weights: str) -> str:
    if weights == "fp32":
        return "as uploaded"
    return f"as uploaded: {weights} weights, computed in fp32 where the processor has nothing else"


def _rungs(
    order: MakeOrder, files: tuple[str, ...], note: str, sizes: Sequence[Size | None]
) -> tuple[MadeVariant, ...]:
    """The variants on one file: one for each size."""
    inspection = order.inspection
    full = inspection.ladder[0] if inspection.ladder else None
    return tuple(
        MadeVariant(
            name=variant_name(order.precision, size, full),
            precision=order.precision,
            path=files[0],
            size_bytes=sum(Path(file).stat().st_size for file in files),
            inputs=inspection.inputs,
            outputs=inspection.outputs,
            height=size.height if size else None,
            width=size.width if size else None,
            batch_max=inspection.batch_max,
            files=files,
            notes=note,
            is_original=order.precision is inspection.precision and size == full,
        )
        for size in sizes
    )
