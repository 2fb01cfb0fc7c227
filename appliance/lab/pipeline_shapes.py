"""Pipelines as a scenario writes them, `[[pipelines]]`: their stages, who sends frames, and what those show.

Short stages name applications with `after` and `fan_out`, the mean items of a frame on that edge; stages may also be
written in full, as `POST /v1/pipelines` takes them. What a network would see in a frame is written beside the stage:
how many regions (`fan_out`, `items`, `items_csv`), and which labels.
"""

import csv
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from appliance.domain.catalogue import SLO_MS_MAX
from appliance.domain.errors import BadInput, BadPipeline
from appliance.domain.names import application_id
from appliance.domain.pipeline import (
    ITEMS_MAX,
    Ask,
    CostBy,
    Crop,
    Join,
    OnError,
    Pick,
    PickBy,
    Pipeline,
    Stage,
    When,
    Where,
)
from appliance.domain.pipeline_graph import Graph
from appliance.lab.problems.base import Malformed, Name, NotNegative, Positive, Shape, Share, known, refuse_duplicates
from appliance.lab.workload import Time

FRAMES_MAX = 10_000_000
"""Of one scenario."""
CLIENTS_MAX = 4096
CUT_MS = 0.3
"""A CPU stage, where nothing is said: what cutting an item out takes."""


Label = Annotated[str, StringConstraints(max_length=200)]
"""What networks say: a text that was read may be empty."""


class WhereShape(Shape):
    """As in `/v1/pipelines`."""

    score_min: Share = 0.0
    label: Label | list[Label] = Field([])
    label_not: Label | list[Label] = Field([])
    size_min: Share = 0.0
    """Refused above 0: regions of a scenario have no size."""


class WhenShape(Shape):
    """As in `/v1/pipelines`."""

    stage: Name
    label: Label | list[Label] = Field([])
    label_not: Label | list[Label] = Field([])
    score_min: Share = 0.0


class StageShape(Shape):
    """An application, or what `do` says."""

    name: Name | None = None
    """None: as the application."""
    application: Name | None = None
    do: Literal["crop", "pick", "join"] | None = None
    after: Name | list[Name] = Field([])
    when: WhenShape | None = None
    at_most: Annotated[int, Field(ge=1, le=ITEMS_MAX)] = ITEMS_MAX
    on_error: OnError = Field(OnError.SKIP, strict=False)
    variant: Name | None = None
    accuracy_min: NotNegative | None = None
    stateful: bool = False
    of: Name = "regions"
    where: WhereShape = Field(WhereShape())
    best: Annotated[int, Field(ge=1, le=ITEMS_MAX)] = 1
    by: PickBy = Field(PickBy.SCORE, strict=False)
    labels: list[Label] = Field([])
    """Of a `pick`."""
    fan_out: Annotated[float, Field(ge=0, le=1000)] | None = None
    """Mean items of a frame that this stage cuts out; before an application a crop stands that does so. Poisson."""
    items: list[Annotated[int, Field(ge=0, le=1000)]] | None = None
    """In place of `fan_out`: of one frame after the other, repeated."""
    items_csv: Name | None = None
    """The same from a file beside the scenario, column `items`."""
    seen: dict[Label, Positive] = Field({})
    """Labels that an application's answers have, by how often; of a detector those of its regions."""
    takes_ms: NotNegative = CUT_MS
    """Of an item at a CPU stage; of a `pick` or a `join` once for all that it looks at together."""

    @property
    def called(self) -> str:
        """Its name."""
        return self.name or self.application or ""

    @property
    def is_fanned(self) -> bool:
        """Whether it says how many items a frame has."""
        return self.fan_out is not None or self.items is not None or self.items_csv is not None


class ClientShape(Shape):
    """Clients that join with a rate, and leave."""

    count: Annotated[int, Field(ge=1, le=CLIENTS_MAX)] = 1
    fps: Annotated[float, Field(gt=0, le=1000)]
    arrive_s: NotNegative = 0.0
    arrival_rps: Positive | None = None
    """They come by themselves from `arrive_s` on, so many a second on average (Poisson); None: all at once."""
    stay_s: Positive | None = None
    """None: to the end."""


class PipelineShape(Shape):
    """One entry of `[[pipelines]]`."""

    name: Name
    tenant: Name | None = None
    """None: that of its first application."""
    latency_slo_ms: Annotated[float, Field(gt=0, le=SLO_MS_MAX)]
    cost_by: CostBy = Field(CostBy.SECONDS, strict=False)
    weight: Positive = 1
    stages: Annotated[list[StageShape], Field(min_length=1, max_length=64)]
    rate_rps: Annotated[float, Field(ge=0, le=1e5)] | None = None
    """Frames of nobody who joined, Poisson."""
    times_s: list[Time] | None = None
    csv: Name | None = None
    """Of those frames, a file with a column `time_s`."""
    clients: Annotated[list[ClientShape], Field(max_length=CLIENTS_MAX)] = Field([])


def stages_of(entry: PipelineShape, tenants: Mapping[str, str]) -> tuple[Stage, ...]:
    """As the box knows them; a crop stands before each application that says how many items it has.

    `tenants`: application → its tenant.
    """
    found: list[Stage] = []
    for shape in entry.stages:
        after = _names(shape.after)
        if _has_crop(shape):
            crop = crop_before(shape)
            found.append(Crop(name=crop, after=after, of="regions"))
            after = (crop,)
        found.append(_stage(shape, after, tenants))
    return tuple(found)


def crop_before(shape: StageShape) -> str:
    """What the crop before an application with several items of a frame is called."""
    return f"{shape.called}-items"


def pipeline_of(entry: PipelineShape, tenants: Mapping[str, str]) -> Pipeline:
    """As the box knows it."""
    tenant = owner_of(entry, tenants)
    return Pipeline(
        f"{tenant}/{entry.name}",
        tenant,
        entry.name,
        entry.latency_slo_ms,
        stages_of(entry, tenants),
        entry.cost_by,
        entry.weight,
    )


def owner_of(entry: PipelineShape, tenants: Mapping[str, str]) -> str:
    """The tenant that is named, else that of the first application."""
    first = next((shape.application for shape in entry.stages if shape.application is not None), None)
    return entry.tenant or ("default" if first is None else tenants[first])


def _stage(shape: StageShape, after: tuple[str, ...], tenants: Mapping[str, str]) -> Stage:
    common: dict[str, Any] = {
        "name": shape.called,
        "after": after,
        "when": None if shape.when is None else _when(shape.when),
        "at_most": shape.at_most,
        "on_error": shape.on_error,
    }
    if shape.application is not None:
        return Ask(
            **common,
            application_id=application_id(tenants[shape.application], shape.application),
            variant=shape.variant,
            accuracy_min=shape.accuracy_min,
            is_stateful=shape.stateful,
        )
    if shape.do == "crop":
        where = Where(shape.where.score_min, _names(shape.where.label), _names(shape.where.label_not))
        return Crop(**common, of=shape.of, where=where)
    if shape.do == "pick":
        return Pick(**common, best=shape.best, by=shape.by, labels=tuple(shape.labels))
    return Join(**common)


def _when(shape: WhenShape) -> When:
    return When(shape.stage, _names(shape.label), _names(shape.label_not), shape.score_min)


def _names(written: str | list[str]) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(written)


def check_pipelines(
    entries: Sequence[PipelineShape],
    tenants: Mapping[str, str],
    duration_s: float | None,
    base_dir: str,
    streamed: Collection[str] = (),
) -> None:
    """`tenants`: application → its tenant; `streamed`: pipelines that devices send frames to.

    Raises: Malformed, naming the key.
    """
    refuse_duplicates((entry.name for entry in entries), "pipelines")
    expected = 0.0
    for i, entry in enumerate(entries):
        key = f"pipelines[{i}]"
        for j, shape in enumerate(entry.stages):
            _check_stage(shape, f"{key}.stages[{j}]", tenants, base_dir)
        _check_graph(entry, key, tenants)
        expected += _check_frames(entry, key, duration_s, is_streamed=entry.name in streamed)
    if expected > FRAMES_MAX:
        raise Malformed("duration_s", f"about {expected:.0f} frames are more than {FRAMES_MAX}")


def _check_stage(shape: StageShape, key: str, tenants: Mapping[str, str], base_dir: str) -> None:
    if (shape.application is None) == (shape.do is None):
        raise Malformed(key, "needs exactly one of application, do")
    if shape.application is not None:
        known(shape.application, list(tenants), f"{key}.application")
    elif shape.name is None:
        raise Malformed(f"{key}.name", "is missing")
    given = [name for name in ("fan_out", "items", "items_csv") if getattr(shape, name) is not None]
    if len(given) > 1:
        raise Malformed(f"{key}.{given[1]}", f"goes with no {given[0]}")
    if given and shape.do in ("pick", "join"):
        raise Malformed(f"{key}.{given[0]}", "is of no use: it cuts nothing out")
    if given and not _names(shape.after):
        raise Malformed(f"{key}.{given[0]}", "needs a stage before it")
    if shape.where.size_min:
        raise Malformed(f"{key}.where.size_min", "is of no use: regions of a scenario have no size")
    if shape.items_csv is not None:
        read_items(Path(base_dir) / shape.items_csv, f"{key}.items_csv")


def _check_graph(entry: PipelineShape, key: str, tenants: Mapping[str, str]) -> None:
    """As the box does, but for what applications take and give, which a scenario does not say."""
    try:
        Graph.of(stages_of(entry, tenants), {})
    except BadPipeline as error:
        written = _written(entry, error.key)
        raise Malformed(f"{key}.{written}", error.message().removeprefix(f"{error.key}: ")) from None
    except BadInput as error:
        raise Malformed(f"{key}.stages", error.message()) from None


def _written(entry: PipelineShape, key: str) -> str:
    """A key of the stages as the box has them (`stages[2].after`), as of those that are written."""
    found = re.match(r"stages\[(\d+)\]", key)
    if found is None:
        return key
    places = [j for j, shape in enumerate(entry.stages) for _ in range(1 + _has_crop(shape))]
    return f"stages[{places[int(found[1])]}]{key[found.end() :]}"


def _has_crop(shape: StageShape) -> bool:
    return shape.application is not None and shape.is_fanned


def _check_frames(entry: PipelineShape, key: str, duration_s: float | None, *, is_streamed: bool) -> float:
    """How many there will be beside those of devices, at most about."""
    sources = [name for name in ("rate_rps", "times_s", "csv") if getattr(entry, name) is not None]
    if len(sources) > 1:
        raise Malformed(f"{key}.{sources[1]}", f"goes with no {sources[0]}")
    if not sources and not entry.clients and not is_streamed:
        raise Malformed(key, "needs one of rate_rps, times_s, csv, clients, or sessions that name it")
    if duration_s is None:
        if entry.rate_rps is not None or entry.clients:
            raise Malformed("duration_s", "is missing")
        return 0.0
    joined = sum(one.count * one.fps * min(one.stay_s or duration_s, duration_s) for one in entry.clients)
    return joined + (entry.rate_rps or 0.0) * duration_s


def read_items(path: Path, key: str) -> list[int]:
    """Items of one frame after the other. Raises: Malformed."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if "items" not in (rows.fieldnames or ()):
                raise Malformed(key, f"{path.name} has no column items")
            found = [_count(row["items"], f"{key}, line {rows.line_num}") for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Malformed(key, f"{path.name} cannot be read: {reason}") from None
    if not found:
        raise Malformed(key, f"{path.name} has no rows")
    return found


def _count(text: str | None, key: str) -> int:
    if text is None or not text.strip().isdigit() or int(text) > 1000:
        raise Malformed(key, f"{(text or '')[:40]!r} is no number of items")
    return int(text)
