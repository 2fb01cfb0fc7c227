"""The live table: what devices and the box told so far, and how it looks on a terminal.

Pure: it only draws. Fits 100 columns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from appliance.demo.figures import Figures, Streamed, latencies, mean
from appliance.domain.states import JobState
from appliance.terminal.screen import milliseconds, share
from appliance.wire.box import MemoryShape
from appliance.wire.catalogue import ApplicationShape
from appliance.wire.jobs import JobShape

APPLICATIONS = "application|tenant|variant|req/s>|P50 ms>|P99 ms>|quality>|warm>|MB>|variants ready"
PIPELINES = "pipeline|tenant|frames/s>|P50 ms>|P99 ms>|in time>|items/frame>|cost ms/frame>"
STREAMS = "stream|promised|kept>|sent>|in time>|session"
BAR_CELLS = 12
STAGE_CHARACTERS = 12
FIXED_LINES = 12
"""Heading, table heading, footer and the empty lines between."""
ENDED = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)

Name = tuple[str, str]
"""(tenant, application)"""


@dataclass(slots=True)
class Picture:
    """The figures of all applications and pipelines, and what the box last said about itself."""

    figures: Sequence[Figures]
    url: str
    key_file: Path
    applications: dict[Name, ApplicationShape] = field(default_factory=dict)
    jobs: dict[Name, JobShape] = field(default_factory=dict)
    """The newest import of each model; models are named like their applications here."""
    memory: MemoryShape | None = None
    computed: str = ""
    """What the processors have done so far."""
    link: str = ""
    """Address that opens the pages and signs a browser in, once; empty before the first is made."""

    def of(self, *, pipelines: bool) -> list[Figures]:
        """Those of the applications, or of the pipelines."""
        return [one for one in self.figures if one.is_pipeline == pipelines]

    def serves(self, tenant: str, application: str) -> bool:
        """Whether it has a variant that answers, as the box last said."""
        known = self.applications.get((tenant, application))
        return known is not None and known.available

    def is_settled(self, figures: Figures) -> bool:
        """Return whether the application has answered, or never will."""
        return figures.ok > 0 or bool(self._failure(figures))

    def trouble(self, figures: Figures) -> str:
        """Why it does not answer, or why its import failed."""
        return figures.trouble or ("" if figures.ok else self._failure(figures))

    def _failure(self, figures: Figures) -> str:
        """Why its model was not imported; empty where it was, or is being imported."""
        job = self.jobs.get((figures.tenant, figures.name))
        if job is None or job.state not in (JobState.FAILED, JobState.CANCELLED):
            return ""
        return f"its import {job.state}: {job.error or job.message}"


def drawn(picture: Picture, elapsed_s: float, now_ns: int, lines_max: int) -> RenderableType:
    """The picture for a terminal of `lines_max` lines: recognised things give way first, then streams."""
    applications, pipelines = picture.of(pipelines=False), picture.of(pipelines=True)
    minutes, seconds = divmod(int(elapsed_s), 60)
    rate = sum(one.rate_per_s(now_ns) for one in applications)
    used, budget = (picture.memory.used_bytes, picture.memory.budget_bytes) if picture.memory else (0, 0)
    done = f"   {minutes}:{seconds:02d}   {rate:.0f} answers/s   in memory {_mb(used)} of {_mb(budget)} MB"
    heading = [_line(("edge appliance", "bold"), done), _line((picture.computed, "dim")), Text("")]
    footer = Text.assemble(
        "open          ",
        (picture.link or picture.url, f"bold link {picture.link or picture.url}"),
        f"\nAPI and docs  {picture.url}/docs\nadmin key     {picture.key_file}\n"
        "ms: as devices see it, over HTTP, last 10 s · warm: found in memory · Ctrl-C ends\n"
        "quality: accuracy where samples are labelled, else agreement with the original",
        overflow="fold",
        style="dim",
    )
    tables = [_table(APPLICATIONS, [_application(picture, one, now_ns) for one in applications]), Text("")]
    room = lines_max - FIXED_LINES - len(applications)
    streams = [_stream(one.streamed) for one in applications if one.streamed]
    for columns, rows in ((PIPELINES, [_pipeline(one, now_ns) for one in pipelines]), (STREAMS, streams)):
        if 0 < len(rows) <= room - 2:
            tables += [_table(columns, rows), Text("")]
            room -= len(rows) + 2
    told = [_line((f"{one.name}: {trouble}", "red")) for one in picture.figures if (trouble := picture.trouble(one))]
    for one in (*pipelines, *applications):
        if one.recognised:
            told.append(_line((f"{one.name:<16} ", "bold"), "   ".join(list(one.recognised)[:-3:-1])))
    return Group(*heading, *tables, *told[: max(0, room)], Text(""), footer)


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _table(columns: str, rows: Iterable[Sequence[RenderableType]]) -> RenderableType:
    """The first column is bold; those that end with `>` are figures."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim", expand=False)
    for column in columns.split("|"):
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", no_wrap=True)
    table.columns[0].style = "bold"
    for row in rows:
        table.add_row(*row)
    return table


def _application(picture: Picture, figures: Figures, now_ns: int) -> list[RenderableType]:
    name, memory = f"{figures.tenant}/{figures.name}", picture.memory
    resident = sum(build.bytes for build in memory.builds if name in build.applications) if memory else None
    return [
        figures.name,
        figures.tenant,
        figures.variant or "–",
        f"{figures.rate_per_s(now_ns):.1f}" if figures.ok else "–",
        *map(milliseconds, latencies(figures.window(now_ns)).values()),
        share(figures.accuracy),
        f"{figures.warm / figures.ok:.0%}" if figures.ok else "–",
        "–" if resident is None else _mb(resident),
        _progress(picture, figures),
    ]


def _progress(picture: Picture, figures: Figures) -> Text:
    """How many of its variants are ready, and how far its import is."""
    name = (figures.tenant, figures.name)
    application, job = picture.applications.get(name), picture.jobs.get(name)
    ready = str(len(application.variants) if application else 0)
    if picture.trouble(figures):
        return _line(("! see below", "red"))
    if job is None or job.state in ENDED:
        return _line((ready, "green"))
    filled = round(BAR_CELLS * job.percent / 100)
    bar = ("━" * filled, "cyan"), ("━" * (BAR_CELLS - filled), "bright_black")
    return _line(f"{ready} ", *bar, (f" {job.stage or 'waits'}"[:STAGE_CHARACTERS], "dim"))


def _pipeline(figures: Figures, now_ns: int) -> list[str]:
    window = figures.window(now_ns)
    items, cost_s = mean([one.items for one in window]), mean([one.cost_s for one in window])
    return [
        figures.name,
        figures.tenant,
        f"{figures.rate_per_s(now_ns):.1f}",
        *map(milliseconds, latencies(window).values()),
        share(figures.in_time / figures.sent if figures.sent else None),
        "–" if items is None else f"{items:.1f}",
        milliseconds(None if cost_s is None else 1000 * cost_s),
    ]


def _stream(one: Streamed) -> list[str]:
    kept = f"{one.kept} of {one.windows}" if one.windows else "–"
    in_time = share(one.in_time / one.sent if one.sent else None)
    return [one.application, one.promised, kept, f"{one.sent} of {one.captured}", in_time, one.state]


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f}"
