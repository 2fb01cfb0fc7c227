"""The live table: one frozen picture of the box, and how it looks on a terminal or as plain lines.

Pure: it only draws. Fits 100 columns.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from appliance.terminal.screen import count, milliseconds, share

if TYPE_CHECKING:
    from rich.console import RenderableType

BAR_CELLS = 12
FIXED_LINES = 10
"""Heading, table heading, footer and the empty lines between."""


@dataclass(frozen=True, slots=True)
class Row:
    """One application in the table; None where there is nothing to say yet."""

    application: str
    tenant: str
    variant: str
    rate_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    accuracy: float | None
    warm_share: float | None
    resident_bytes: int | None
    """Bytes of its variants in memory now; 0: none is."""
    variants_ready: int
    import_percent: float | None
    """Progress of its import; None: it has ended, or was done in an earlier run."""
    import_stage: str
    trouble: str = ""
    """Why it does not answer, or why its import failed."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a device with a session was promised, and in how many of the stretches of 10 s that are over it was kept."""

    application: str
    promised: str
    state: str
    windows: int
    kept: int
    captured: int
    sent: int
    in_time: int


@dataclass(frozen=True, slots=True)
class Framed:
    """One pipeline; None where there is nothing to say yet."""

    pipeline: str
    tenant: str
    rate_fps: float
    p50_ms: float | None
    p99_ms: float | None
    in_time: float | None
    """Share of all frames."""
    items_per_frame: float | None
    cost_ms: float | None
    """Processor time of a frame."""
    trouble: str = ""

    def cells(self) -> tuple[str, ...]:
        return (
            f"{self.rate_fps:.1f}",
            milliseconds(self.p50_ms),
            milliseconds(self.p99_ms),
            share(self.in_time),
            "–" if self.items_per_frame is None else f"{self.items_per_frame:.1f}",
            milliseconds(self.cost_ms),
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything on the screen at one instant."""

    elapsed_s: float
    rows: tuple[Row, ...]
    recognised: tuple[tuple[str, str], ...]
    """(application or pipeline, what it told about real inputs)."""
    resident_bytes: int
    budget_bytes: int
    runs: tuple[tuple[str, int], ...]
    """Of each processor that takes runs, by name."""
    items_per_run: float | None
    url: str
    key_file: str
    streamed: tuple[Streamed, ...] = ()
    framed: tuple[Framed, ...] = ()

    def computed(self) -> str:
        """What the processors have done so far."""
        runs = "   ".join(f"{name} {number} runs" for name, number in self.runs)
        return runs if self.items_per_run is None else f"{runs}   {self.items_per_run:.2f} items a run"

    def memory(self) -> str:
        return f"in memory {_megabytes(self.resident_bytes)} of {_megabytes(self.budget_bytes)} MB"

    def troubles(self) -> Iterator[str]:
        """What is wrong, a line each."""
        yield from (f"{row.application}: {row.trouble}" for row in self.rows if row.trouble)
        yield from (f"{one.pipeline}: {one.trouble}" for one in self.framed if one.trouble)


def drawn(picture: Picture, lines_max: int = 50) -> "RenderableType":
    """The picture for a terminal of `lines_max` lines: recognised things give way first, then streams."""
    from rich.console import Group
    from rich.text import Text

    minutes, seconds = divmod(int(picture.elapsed_s), 60)
    rate = sum(row.rate_per_s for row in picture.rows)
    heading = Text.assemble(
        ("edge appliance", "bold"),
        f"   {minutes}:{seconds:02d}   {rate:.0f} answers/s   {picture.memory()}\n",
        (picture.computed(), "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
    footer = Text(
        f"API and docs  {picture.url}/docs\nadmin key     {picture.key_file}\n"
        "ms: as devices see it, over HTTP, last 10 s · warm: found in memory · Ctrl-C ends",
        overflow="fold",
        style="dim",
    )
    lines: list[RenderableType] = [heading, Text(""), _applications(picture), Text("")]
    room = lines_max - FIXED_LINES - len(picture.rows)
    for rows, table in ((len(picture.framed), _pipelines), (len(picture.streamed), _streams)):
        if 0 < rows <= room - 2:
            lines += [table(picture), Text("")]
            room -= rows + 2
    told = [Text(trouble, style="red", no_wrap=True, overflow="ellipsis") for trouble in picture.troubles()]
    for name, words in picture.recognised:
        told.append(Text.assemble((f"{name:<16} ", "bold"), words, no_wrap=True, overflow="ellipsis"))
    return Group(*lines, *told[: max(0, room)], Text(""), footer)


def _table(columns: Iterable[dict[str, Any]], rows: Iterable[tuple[Any, ...]]) -> "RenderableType":
    """Columns as rich describes them; the first is bold, those without a width are figures."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim", expand=False)
    for number, options in enumerate(columns):
        side = "left" if {"max_width", "min_width"} & options.keys() else "right"
        table.add_column(**{"justify": side, "no_wrap": True, "style": "" if number else "bold", **options})
    for row in rows:
        table.add_row(*row)
    return table


def _figures(*headings: str) -> list[dict[str, Any]]:
    return [{"header": heading} for heading in headings]


NAMED = {"header": "tenant", "max_width": 10}


def _applications(picture: Picture) -> "RenderableType":
    columns = [
        {"header": "application", "max_width": 16},
        NAMED,
        {"header": "variant", "max_width": 14, "min_width": 9},
        *_figures("req/s", "P50 ms", "P99 ms", "accuracy", "warm", "MB"),
        {"header": "variants ready", "min_width": 24, "max_width": 26},
    ]
    rows = (
        (
            row.application,
            row.tenant,
            row.variant or "–",
            f"{row.rate_per_s:.1f}" if row.variant else "–",
            milliseconds(row.p50_ms),
            milliseconds(row.p99_ms),
            share(row.accuracy),
            "–" if row.warm_share is None else f"{row.warm_share:.0%}",
            "–" if row.resident_bytes is None else _megabytes(row.resident_bytes),
            _progress(row),
        )
        for row in picture.rows
    )
    return _table(columns, rows)


def _progress(row: Row) -> "RenderableType":
    from rich.text import Text

    if row.trouble:
        return Text("! see below", style="red")
    if row.import_percent is None:
        return Text(f"{row.variants_ready}", style="green")
    filled = round(BAR_CELLS * row.import_percent / 100)
    return Text.assemble(
        f"{row.variants_ready} ",
        ("━" * filled, "cyan"),
        ("━" * (BAR_CELLS - filled), "bright_black"),
        (f" {row.import_stage or 'waits'}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _streams(picture: Picture) -> "RenderableType":
    columns = [
        {"header": "stream", "max_width": 16},
        {"header": "promised", "max_width": 24},
        *_figures("kept", "sent", "in time"),
        {"header": "session", "max_width": 10},
    ]
    rows = (
        (
            one.application,
            one.promised,
            f"{one.kept} of {one.windows}" if one.windows else "–",
            f"{one.sent} of {one.captured}",
            share(one.in_time / one.sent) if one.sent else "–",
            one.state,
        )
        for one in picture.streamed
    )
    return _table(columns, rows)


def _pipelines(picture: Picture) -> "RenderableType":
    figures = _figures("frames/s", "P50 ms", "P99 ms", "in time", "items/frame", "cost ms/frame")
    rows = ((one.pipeline, one.tenant, *one.cells()) for one in picture.framed)
    return _table([{"header": "pipeline", "max_width": 16}, NAMED, *figures], rows)


def in_lines(picture: Picture) -> Iterator[str]:
    """The picture for a log file: a line an application."""
    applications = count(len(picture.rows), "application")
    yield f"{picture.elapsed_s:6.0f} s  {applications}, {picture.memory()}   {picture.computed()}"
    for row in picture.rows:
        told = "no answer yet"
        if row.variant:
            told = f"{row.rate_per_s:.1f}/s P50 {milliseconds(row.p50_ms)} P99 {milliseconds(row.p99_ms)} ms "
            told += f"accuracy {share(row.accuracy)} variant {row.variant}"
        if row.import_percent is not None:
            told += f" · import {row.import_percent:.0f} % {row.import_stage}".rstrip()
        yield _line(f"{row.tenant}/{row.application}", told, row.trouble)
    for one in picture.framed:
        rate, p50, p99, in_time, items, cost = one.cells()
        told = f"{rate} frames/s P50 {p50} P99 {p99} ms in time {in_time} items a frame {items} cost a frame {cost} ms"
        yield _line(f"{one.tenant}/{one.pipeline}", told, one.trouble)
    for stream in picture.streamed:
        told = f"promised {stream.promised}: {stream.state}, kept {stream.kept} of {stream.windows}, "
        told += f"sent {stream.sent} of {stream.captured}, {stream.in_time} in time"
        yield _line(f"a stream to {stream.application}", told)


def _line(name: str, told: str, trouble: str = "") -> str:
    return f"    {name:<24} {told}" + (f" · {trouble}" if trouble else "")


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f}"
