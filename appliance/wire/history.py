"""History of the box: series of figures, kept promises, use of tenants, and variants in memory."""

import datetime

from pydantic import Field

from appliance.wire.shape import Shape


class SeriesShape(Shape):
    """One series; a point of the answer is one of each list. null: the box did not run, or there was nothing to say."""

    name: str = Field(examples=["p99:harbour/door"])
    unit: str = Field(examples=["ms"])
    """`1/s`, `ms`, `share` (of 1), `bytes`, `°C`, `W`, `rpm`, `%`, or nothing."""
    mean: list[float | None] = Field(examples=[[4.1, 4.3]])
    least: list[float | None] = Field(examples=[[3.2, 3.9]])
    """Of the samples behind the point."""
    most: list[float | None] = Field(examples=[[5.0, 9.7]])
    total: float | None = Field(None, examples=[1312.0])
    """Events of a rate in all of the time asked for, however many points there are; null: it is no rate."""


class HistoryShape(Shape):
    """Series over one stretch of time, with points at equal distances."""

    start: datetime.datetime
    """Of the first point, which covers the time from then to the next."""
    step_s: int = Field(examples=[10])
    """From one point to the next."""
    count: int = Field(examples=[360])
    """Points of each series."""
    series: list[SeriesShape]
    """In the order asked for."""
    known: list[str] = Field(examples=[["requests", "p99:harbour/door"]])
    """Where no series was asked for: those that there are and this key sees."""


class PromiseCellsShape(Shape):
    """Columns of cells, oldest first; the values at one index belong to one cell."""

    kept: list[int]
    late: list[int]
    refused: list[int]
    failed: list[int]
    down_s: list[int | None]
    """Seconds in which the box did not run; null: it was not recorded, for example before the box was installed."""


class PromiseSpanShape(Shape):
    """Counts of a promise in the last hour, day or month; each is the sum of its cells."""

    start: datetime.datetime
    """Beginning of the first cell. The last cell is under way."""
    cell_s: int = Field(examples=[60])
    """Length of a cell: 60 s in an hour, 1800 s in a day, a day of UTC in a month."""
    kept: int = Field(examples=[1310])
    late: int = Field(examples=[2])
    """Answered too late, or cut off at the deadline."""
    refused: int = Field(examples=[0])
    """Refused because queues, processors or memory were full."""
    failed: int = Field(examples=[0])
    """A run failed, or the box was not able to answer; of windows: not kept, for whatever reason."""
    share: float | None = Field(examples=[0.9985])
    """`kept` of all of these, 0 to 1; null: nothing ended. Time in which the box did not run is in `down_s` alone."""
    down_s: int = Field(examples=[0])
    """Seconds in which the box did not run, to ten seconds."""
    cells: PromiseCellsShape | None = None
    """Cells of the span; null unless `application` or `pipeline` is named."""


class PromiseHistoryShape(Shape):
    """A promise, and its counts in the last hour, day and month."""

    tenant: str = Field(examples=["harbour"])
    kind: str = Field(examples=["application"])
    """`application` or `pipeline`."""
    name: str = Field(examples=["door"])
    of: str = Field(examples=["requests"])
    """`requests` of an application with an SLO, `frames` of a pipeline, or `windows` of sessions at an application or a
    pipeline: 10 s each for latency, 1 s for accuracy.
    """
    latency_slo_ms: float | None = Field(examples=[100.0])
    """Present SLO. Earlier counts are by the SLO of their time."""
    hour: PromiseSpanShape
    day: PromiseSpanShape
    month: PromiseSpanShape


class PromiseHistoriesShape(Shape):
    """Promises, and how they were kept."""

    items: list[PromiseHistoryShape]


class TenantUsedShape(Shape):
    """Use of the box by a tenant in the last hour, day or month."""

    name: str = Field(examples=["harbour"])
    requests: int = Field(examples=[5210])
    """Requests of the tenant, with all outcomes; each item of a pipeline's stage is one."""
    processor_s: float = Field(examples=[41.7])
    """Processor time of its requests and frames; of a shared run, the part of its rows."""
    memory_bytes: int
    """Mean memory of its models, over the time in which the box ran."""
    stored_bytes: int
    """Present size of its models and uploads on disk."""


class TenantsUsedShape(Shape):
    """Use of the box by tenants, in the order asked for."""

    start: datetime.datetime
    items: list[TenantUsedShape]
    next_cursor: str | None = None
    """Cursor of the next page; null: there is none."""


class StayShape(Shape):
    """A build's stay in memory, or asleep, between two changes."""

    applications: list[str] = Field(examples=[["harbour/door"]])
    """Whose it was when it came; with a tenant's key, its own."""
    variant: str = Field(examples=["int8"])
    """Empty where no application used it any more; of a build that tenants share: what the own application calls it."""
    build: str = Field(examples=["9f8a3c5be01d4f7a2c6b8e90@cpu"])
    state: str = Field(examples=["resident"])
    """`resident`, or `asleep`."""
    bytes: int
    """What it took when it came."""
    since: datetime.datetime
    until: datetime.datetime | None
    """null: it is still there."""
    came_by: str = Field(examples=["loaded"])
    """`loaded`, `woken` or `fell asleep`."""
    came: int | None = Field(examples=[4711])
    """The decision that ordered it; null: none was needed, for there was room, or somebody ordered it."""
    left_by: str = Field(examples=["evicted"])
    """`evicted` (for another), `released` (its application has another variant), `unloaded`, `woken`, `lost` (its
    process or processor), `box stopped` or `box ended` (without a word); empty while it is there.
    """
    left: int | None = Field(examples=[4712])
    """The decision that ordered it; null: there was none."""


class ReasonShape(Shape):
    """Why a decision was made."""

    decision: int = Field(examples=[4712])
    reason: str
    """The policy's words; empty where they name other tenants' applications."""


class WindowShape(Shape):
    """A window around predicted requests of an application; of those that share their variants, of the first."""

    application: str = Field(examples=["harbour/door"])
    since: datetime.datetime
    until: datetime.datetime


class MemoryHistoryShape(Shape):
    """Who was in memory, in which variant, from when to when, and why; oldest first."""

    start: datetime.datetime
    end: datetime.datetime
    stays: list[StayShape]
    decisions: list[ReasonShape]
    """Those that stays name."""
    windows: list[WindowShape]
    is_whole: bool
    """False: there were more than the answer holds, and the oldest were left out."""


class BuildColumnShape(Shape):
    """What stays of one build have in common, as `StayShape` has it."""

    applications: list[str] = Field(examples=[["harbour/door"]])
    variant: str
    build: str
    state: str


class StayColumnsShape(Shape):
    """Stays, oldest first: the values at one place of all columns are one stay."""

    build: list[int]
    """Its place in `builds`."""
    bytes: list[int]
    since_ms: list[int]
    """Milliseconds after `start`; less than 0: it was there before."""
    until_ms: list[int | None]
    came_by: list[int]
    """Its place in `ways`."""
    came: list[int | None]
    left_by: list[int]
    """Its place in `ways`."""
    left: list[int | None]


class WindowColumnsShape(Shape):
    """Windows: the values at one place of all columns are one window."""

    application: list[int]
    """Its place in `applications`."""
    since_ms: list[int]
    until_ms: list[int]


class MemoryColumnsShape(Shape):
    """The same as `MemoryHistoryShape`, in a sixth of the bytes: what repeats is told once, times as milliseconds."""

    start: datetime.datetime
    end: datetime.datetime
    builds: list[BuildColumnShape]
    ways: list[str] = Field(examples=[["loaded", "evicted", ""]])
    stays: StayColumnsShape
    decisions: list[ReasonShape]
    applications: list[str]
    windows: WindowColumnsShape
    is_whole: bool
