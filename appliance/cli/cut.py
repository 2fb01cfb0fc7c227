"""`appliance cut`: in which parts would a network run on a kind of processor that is not here? It needs no box."""

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from appliance.modelstore.orders import CutMade, Dissected

FIRST = "cpu"


def cut(
    file: Annotated[Path, typer.Argument(help="An ONNX file.", exists=True, dir_okay=False)],
    kind: Annotated[str, typer.Option("--for", help="Kind of processor, by its vendor's limits.")] = "dla",
    task: Annotated[str, typer.Option(help="What it does, which decides with which inputs it is run.")] = "tensor",
    parts_max: Annotated[int, typer.Option(help="Parts at most; 0: no bound.", min=0)] = 16,
    part_ops_min: Annotated[int, typer.Option(help="Lighter parts of fewer operators join; 1: none.", min=1)] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with JSON.")] = False,
) -> None:
    """Cut a network as the import of a box would that has a processor of that kind beside its CPU.

    What the kind takes is looked up in its vendor's limits; the parts are run on the CPU and compared with the whole.

    [dim]$[/dim] appliance cut centerface.onnx --task face-detection --for dla
    """
    made = asyncio.run(_made(file, kind, task, parts_max, part_ops_min))
    if as_json:
        from appliance.modelstore.orders import to_json

        answer = to_json(made)
        screen.show_json({"reason": made.reason, "parts": [_without_path(unit) for unit in answer["units"]]})
        return
    whole = sum(unit.flops for unit in made.units)
    rows = [
        (
            number,
            unit.operators,
            " ".join(unit.kinds),
            screen.share(unit.flops / whole if whole else 0.0),
            screen.size(unit.size_bytes),
            screen.size(unit.tensor_bytes),
            ", ".join(f"{count} {name}" for name, count in list(unit.op_types.items())[:3]),
        )
        for number, unit in enumerate(made.units)
    ]
    columns = ("part>", "operators>", "runs on", "work>", "size>", "in and out>", "most of it")
    screen.show_table(columns, rows, f"It stays whole: {made.reason}.")


def _without_path(unit: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in unit.items() if name != "path"}


async def _made(file: Path, kind: str, task_name: str, parts_max: int, part_ops_min: int) -> "CutMade":
    """Raises: BadModel, CommandFailed."""
    import tempfile

    from appliance.domain.catalogue import Precision, TaskKind, TaskSpec, Variant
    from appliance.modelstore.importing.child import Stages
    from appliance.modelstore.importing.dissection import Whole, in_parts
    from appliance.modelstore.importing.tools import ImportOptions
    from appliance.modelstore.orders import WITH_LIMITS, InspectOrder
    from appliance.tasks import infer_spec

    if kind not in WITH_LIMITS:
        raise CommandFailed(f"no limits of kind {kind!r} are known; known are: {', '.join(WITH_LIMITS)}")
    if task_name not in list(TaskKind):
        raise CommandFailed(f"there is no task {task_name!r}; use one of: {', '.join(TaskKind)}")
    task = TaskKind(task_name)

    async def kinds_of(found: "Dissected") -> tuple[tuple[str, ...], ...]:
        return tuple((FIRST, *operator.tables) for operator in found.operators)

    options = ImportOptions(part_ops_min=part_ops_min, parts_max=parts_max)
    with tempfile.TemporaryDirectory(prefix="cut-") as scratch, contextlib.closing(Stages()) as stages:
        folder, source = Path(scratch), await asyncio.to_thread(file.resolve)
        order = InspectOrder(str(source), str(folder / "inspected"), TaskSpec(task))
        inspection = await stages.run(order, limits=options.limits, scratch=folder)
        inputs, outputs = inspection.inputs, inspection.outputs
        variant = Variant("", "", "", Precision.FP32, "", inspection.size_bytes, inputs, outputs)
        spec = infer_spec(task, inputs, outputs, inspection.metadata_props)
        whole = Whole(variant, spec, inspection.axes, Path(inspection.model))
        parts = folder / "parts"
        parts.mkdir()
        made, _batches = await in_parts(whole, parts, kinds_of, stages, options, [kind])
    return made
