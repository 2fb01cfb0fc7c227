"""`appliance pipelines`: frames through several networks, with one SLO over all of it."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from appliance.cli.connection import Connection, connected
from appliance.cli.frame_text import tree_of
from appliance.cli.predict import body_of, show_later
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from appliance.client.pipelines import FrameOptions
    from appliance.wire.pipelines import AnyStage, CostShape, PipelineRowShape, PipelineStatusShape
    from appliance.wire.shape import Order

OneOrder = TypeVar("OneOrder", bound="Order")
_WRONG_MAX = 5
"""Fields that one sentence names."""

app = typer.Typer(
    no_args_is_help=True, help="Pipelines: frames through several networks, with one latency SLO over all of it."
)


@app.command("list")
@connected
def list_pipelines(box: Connection) -> None:
    """List the pipelines that the key may call, with what became of their frames in the last ten seconds.

    [dim]$[/dim] appliance pipelines list --tenant harbour
    """
    columns = ("pipeline", "tenant", "SLO>", "fastest>", "frames/s>", "in time>", "a frame>", "cost by", "stages")
    hint = "make one with: appliance pipelines create FILE"
    with box.client() as client:
        box.table(client.pipelines(), columns, list_row, ("pipeline", hint))


@app.command("show")
@connected
def show_pipeline(box: Connection, name: str) -> None:
    """Show a pipeline: its stages, the plan with its reason, what became of its frames, and what they cost.

    [dim]$[/dim] appliance pipelines show signs --tenant harbour
    """
    from appliance.cli.promise_text import promise_lines

    with box.client() as client:
        pipeline = client.pipeline(name)
        promises = client.promises(pipeline=name)
    lines = (*status_lines(pipeline), *promise_lines(promises))
    box.tell({**pipeline.model_dump(mode="json"), "promises": promises}, lines)


@app.command("create")
@connected
def create_pipeline(
    box: Connection,
    file: Annotated[Path, typer.Argument(help="TOML or JSON, as POST /v1/pipelines takes it (docs/pipelines.md).")],
    name: Annotated[str | None, typer.Option(help="Another name than the file has.")] = None,
) -> None:
    """Define a pipeline.

    [dim]$[/dim] appliance pipelines create signs.toml --tenant harbour
    """
    from appliance.wire.pipelines import PipelineOrder

    with box.client() as client:
        pipeline = client.create_pipeline(_checked(PipelineOrder, _read(file, name), str(file)))
    send = f"appliance pipelines predict {pipeline.name} FILE"
    box.tell(pipeline, f"pipeline {pipeline.name} is defined; send frames with: {send}")


@app.command("change")
@connected
def change_pipeline(
    box: Connection,
    name: str,
    file: Annotated[
        Path | None, typer.Argument(help="TOML or JSON with what is to be another way; `name` in it is passed over.")
    ] = None,
    slo_ms: Annotated[float | None, typer.Option("--slo-ms", help="From a frame's arrival to its answer.")] = None,
    weight: Annotated[float | None, typer.Option(help="Weight among the pipelines.", min=0.001)] = None,
) -> None:
    """Change a pipeline of a running box; what is not named stays. It holds from the next frame on.

    [dim]$[/dim] appliance pipelines change signs --slo-ms 400
    """
    from appliance.wire.pipelines import PipelineChange

    fields = {} if file is None else {key: one for key, one in _read(file, None).items() if key != "name"}
    given = {"latency_slo_ms": slo_ms, "weight": weight}
    fields |= {key: value for key, value in given.items() if value is not None}
    if not fields:
        raise typer.BadParameter("say what to change")
    with box.client() as client:
        pipeline = client.change_pipeline(name, _checked(PipelineChange, fields, str(file or "what to change")))
    box.tell(pipeline, f"pipeline {pipeline.name} is changed")


@app.command("delete")
@connected
def delete_pipeline(box: Connection, name: str) -> None:
    """Delete a pipeline; its applications stay.

    [dim]$[/dim] appliance pipelines delete signs
    """
    with box.client() as client:
        client.delete_pipeline(name)
    print(f"pipeline {name} is deleted")


@app.command("predict")
@connected
def predict_pipeline(
    box: Connection,
    name: str,
    file: Annotated[
        Path | None, typer.Argument(help="JPEG, PNG, WebP, BMP, GIF, TIFF, WAV, text, or JSON; - reads standard input.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Text instead of a file.")] = None,
    content_type: Annotated[str | None, typer.Option(help="What the file is, where its name does not tell.")] = None,
    timeout_ms: Annotated[float | None, typer.Option(help="Deadline of the frame.", min=1)] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the answer, or show an id to fetch it by.")
    ] = True,
    client_id: Annotated[str | None, typer.Option("--client", help="Of the client that has joined.")] = None,
    number: Annotated[int | None, typer.Option("--frame", help="Of the frame, among its client's.", min=0)] = None,
) -> None:
    """Send one frame through a pipeline and show what its stages answer.

    [dim]$[/dim] appliance pipelines predict signs street.jpg --tenant harbour
    [dim]$[/dim] appliance pipelines predict signs street.jpg --json | jq .timings_ms
    """
    if (file is None) == (text is None):
        raise typer.BadParameter("give either a file or --text")
    body, kind = body_of(file, text, content_type)
    options: FrameOptions = {"timeout_ms": timeout_ms, "client": client_id, "frame": number}
    with box.client() as client:
        if not wait:
            show_later(box, client.run_pipeline_later(name, body, content_type=kind, **options))
            return
        frame = client.run_pipeline(name, body, content_type=kind, **options)
    answer = frame.model_dump(mode="json", exclude_none=True)
    box.tell(answer, tree_of(answer))


@app.command("join")
@connected
def join_pipeline(
    box: Connection, name: str, fps: Annotated[float, typer.Option("--fps", help="Frames that it will send a second.")]
) -> None:
    """Have the box plan for a client that sends frames at a rate, and print its id, or what it lacks for that.

    It leaves by `appliance pipelines leave`, or when it sends nothing for ten seconds.

    [dim]$[/dim] CLIENT=$(appliance pipelines join signs --fps 5)
    [dim]$[/dim] appliance pipelines predict signs street.jpg --client $CLIENT --frame 1
    """
    with box.client() as client:
        joined = client.join_pipeline(name, fps)
    box.tell(joined, joined.id)


@app.command("leave")
@connected
def leave_pipeline(
    box: Connection, name: str, client_id: Annotated[str, typer.Argument(metavar="CLIENT", help="Its id.")]
) -> None:
    """Have the box plan for a client no more.

    [dim]$[/dim] appliance pipelines leave signs $CLIENT
    """
    with box.client() as client:
        client.leave_pipeline(name, client_id)
    print(f"{client_id} has left {name}")


def _read(file: Path, name: str | None) -> dict[str, Any]:
    """A definition. Raises: CommandFailed."""
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text) if file.suffix.lower() == ".toml" else json.loads(text)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{file}: {error}") from error
    if not isinstance(found, dict):
        raise CommandFailed(f"{file} holds no definition of a pipeline")
    return found if name is None else {**found, "name": name}


def _checked(order: type[OneOrder], found: dict[str, Any], source: str) -> OneOrder:
    """As the box takes it. Raises: CommandFailed."""
    from pydantic import ValidationError

    try:
        return order.model_validate(found)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:_WRONG_MAX]]
        raise CommandFailed(f"{source}: {'; '.join(wrong)}") from None


def list_row(pipeline: "PipelineRowShape") -> tuple[str, ...]:
    """Of a table: how it is defined, and how it does."""
    seconds = pipeline.cost_per_frame.seconds
    return (
        pipeline.name,
        pipeline.tenant,
        f"{pipeline.latency_slo_ms:g} ms",
        screen.milliseconds(pipeline.fastest_ms),
        f"{pipeline.rate_fps:.3g}",
        "–" if pipeline.in_time is None else f"{pipeline.in_time:.1%}",
        f"{1000 * seconds:.3g} ms" if seconds else "–",
        pipeline.cost_by.value,
        " ".join(stage.name for stage in pipeline.stages),
    )


def status_lines(pipeline: "PipelineStatusShape") -> Iterator[str]:
    """A pipeline as it stands, for a person."""
    fastest = "" if pipeline.fastest_ms is None else f", takes {pipeline.fastest_ms:.3g} ms at the least"
    yield f"{pipeline.tenant}/{pipeline.name}   SLO {pipeline.latency_slo_ms:g} ms{fastest}   takes a {pipeline.takes}"
    for stage in pipeline.stages:
        yield f"  {_stage(stage)}"
        figures = pipeline.figures.get(stage.name)
        if figures is not None and figures.items:
            parts = [screen.count(figures.items, "item")]
            parts += [] if figures.items_per_frame is None else [f"{figures.items_per_frame:.3g} a frame"]
            parts += [] if figures.p50_ms is None else [f"{figures.p50_ms:.3g} ms (P50)"]
            parts += [figures.variant] if figures.variant else []
            parts += [] if figures.ballooning is None else [_ballooning(figures.ballooning)]
            ends = f"{figures.dropped} dropped, {figures.errors} failed, {figures.no_condition} not asked"
            yield f"      {', '.join(parts)}; {ends}"
    frames = pipeline.frames
    yield (
        f"  frames        {frames.answered} answered, {frames.in_time} in time, {frames.late} late, "
        f"{frames.dropped} incomplete, {frames.errors} with items that failed, "
        f"{frames.failed} failed, {frames.under_way} under way; {pipeline.rate_fps:.3g} a second"
    )
    clients = ", ".join(f"{one.id} ({one.fps:g} a second)" for one in pipeline.clients)
    yield f"  clients       {clients or 'none'}"
    plan = pipeline.plan
    if plan is None:
        yield "  plan          none: served by dispatch and early drop"
    else:
        cost = "" if plan.cost is None else f", {plan.cost:.3g} a second by {plan.cost_by.value}"
        how = ("" if plan.feasible else ", impossible") + (", degraded" if plan.degraded else "")
        if plan.fps or not plan.feasible:
            yield f"  plan {plan.number:<8} {plan.fps:.3g} frames a second{cost}{how}: {plan.reason}"
        else:
            yield f"  plan {plan.number:<8} {plan.reason}"
        for row in plan.stages:
            yield (
                f"      {row.stage}: {row.variant or 'host'} on {row.worker}, batch {row.batch} x {row.concurrency}, "
                f"{row.rate_rps:.3g}/s, {_workers(row.instances)}, {row.latency_ms:.3g} ms"
            )
    seconds = " ".join(f"{one.in_time}/{one.sent}" for one in pipeline.finish_rate)
    if seconds:
        yield f"  in time       {seconds} of those sent, by second"
    yield f"  cost          {_cost(pipeline.cost.per_frame)} a frame, {_cost(pipeline.cost.per_second)} a second"
    if pipeline.cost.energy_by is not None:
        yield f"                joules by watts that are {pipeline.cost.energy_by}"


def _ballooning(times: float) -> str:
    told = f"{times:.3g}"
    return "runs take as long as was measured" if told == "1" else f"runs take {told} times what was measured"


def _workers(number: float) -> str:
    """Workers that a stage takes; of hardly any no digits that say nothing."""
    if number < 0.01:
        return "< 0.01 workers"
    told = f"{number:.2f}"
    return "1 worker" if told == "1.00" else f"{told} workers"


def _cost(cost: "CostShape") -> str:
    if not cost.seconds:
        return "nothing"
    told = [f"{1000 * cost.seconds:.3g} ms of processors"]
    told += [] if cost.joules is None else [f"{cost.joules:.3g} J"]
    told += [] if cost.price is None else [f"price {cost.price:.3g}"]
    return " and ".join(told)


def _stage(stage: "AnyStage") -> str:
    """One line about a stage."""
    given = stage.model_dump(mode="json", exclude_defaults=True)
    name, after = given.pop("name"), given.pop("after", [])
    what = given.pop("application", None) or given.pop("do")
    rest = "  ".join(f"{key} {_short(value)}" for key, value in given.items())
    return f"{name:<14}{what:<18}{'after ' + ', '.join(after) if after else 'first':<22}{rest}".rstrip()


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_short(one)}" for key, one in value.items()) + ")"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
