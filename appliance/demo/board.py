"""The live table: one frozen picture of the box, and how it looks on a terminal or as plain lines.

Pure: whoever runs the demo takes the picture, this module only draws it. Fits 100 columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.terminal.screen import count, milliseconds, share

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

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
class Recognised:
    """Something an application told about a real input."""

    application: str
    words: str


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a device with a session was promised, and what was kept."""

    application: str
    promised: str
    state: str
    windows: int
    """Stretches of 10 s that are over."""
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


@dataclass(frozen=True, slots=True)
class Computed:
    """What the processors have done so far."""

    runs: tuple[tuple[str, int], ...] = ()
    """Of each processor that takes runs, by name."""
    items_per_run: float | None = None
    """None before the first run."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything on the screen at one instant."""

    elapsed_s: float
    rows: tuple[Row, ...]
    recognised: tuple[Recognised, ...]
    resident_bytes: int
    budget_bytes: int
    computed: Computed
    url: str
    key_file: str
    streamed: tuple[Streamed, ...] = ()
    framed: tuple[Framed, ...] = ()


def drawn(picture: Picture, lines_max: int = 50) -> "RenderableType":
    """The picture for a terminal of `lines_max` lines: recognised things give way first, then streams."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = [_heading(picture), Text(""), _table(picture), Text("")]
    room = lines_max - FIXED_LINES - len(picture.rows)
    for rows, table in ((len(picture.framed), _pipelines), (len(picture.streamed), _streams)):
        if 0 < rows <= room - 2:
            lines += [table(picture), Text("")]
            room -= rows + 2
    told = [Text(trouble, style="red", no_wrap=True, overflow="ellipsis") for trouble in troubles(picture)]
    told += [_recognised_line(found) for found in picture.recognised]
    lines += told[: max(0, room)]
    lines += [Text(""), _footer(picture)]
    return Group(*lines)


def _heading(picture: Picture) -> "RenderableType":
    from rich.text import Text

    minutes, seconds = divmod(int(picture.elapsed_s), 60)
    rate = sum(row.rate_per_s for row in picture.rows)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("edge appliance", style="bold")
    text.append(f"   {minutes}:{seconds:02d}   {rate:.0f} answers/s   in memory {_megabytes(picture.resident_bytes)}")
    text.append(f" of {_megabytes(picture.budget_bytes)} MB\n")
    text.append(_computed(picture.computed), style="dim")
    return text


def _computed(computed: Computed) -> str:
    runs = "   ".join(f"{name} {count} runs" for name, count in computed.runs)
    return f"{runs}   {computed.items_per_run:.2f} items a run" if computed.items_per_run is not None else runs


def _table(picture: Picture) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim", expand=False)
    table.add_column("application", style="bold", no_wrap=True, max_width=16)
    table.add_column("tenant", no_wrap=True, max_width=10)
    table.add_column("variant", no_wrap=True, max_width=14, min_width=9)
    for heading in ("req/s", "P50 ms", "P99 ms", "accuracy", "warm", "MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("variants ready", no_wrap=True, min_width=24, max_width=26)
    for row in picture.rows:
        table.add_row(*_cells(row), _progress(row))
    return table


def _streams(picture: Picture) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim", expand=False)
    table.add_column("stream", style="bold", no_wrap=True, max_width=16)
    table.add_column("promised", no_wrap=True, max_width=24)
    for heading in ("kept", "sent", "in time"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("session", no_wrap=True, max_width=10)
    for one in picture.streamed:
        kept = f"{one.kept} of {one.windows}" if one.windows else "–"
        in_time = share(one.in_time / one.sent) if one.sent else "–"
        table.add_row(one.application, one.promised, kept, f"{one.sent} of {one.captured}", in_time, one.state)
    return table


def _pipelines(picture: Picture) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim", expand=False)
    table.add_column("pipeline", style="bold", no_wrap=True, max_width=16)
    table.add_column("tenant", no_wrap=True, max_width=10)
    for heading in ("frames/s", "P50 ms", "P99 ms", "in time", "items/frame", "cost ms/frame"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in picture.framed:
        table.add_row(one.pipeline, one.tenant, *_frame_cells(one))
    return table


def _frame_cells(one: Framed) -> tuple[str, ...]:
    return (
        f"{one.rate_fps:.1f}",
        milliseconds(one.p50_ms),
        milliseconds(one.p99_ms),
        share(one.in_time),
        "–" if one.items_per_frame is None else f"{one.items_per_frame:.1f}",
        milliseconds(one.cost_ms),
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.application,
        row.tenant,
        row.variant or "–",
        f"{row.rate_per_s:.1f}" if row.variant else "–",
        milliseconds(row.p50_ms),
        milliseconds(row.p99_ms),
        share(row.accuracy),
        "–" if row.warm_share is None else f"{row.warm_share:.0%}",
        "–" if row.resident_bytes is None else _megabytes(row.resident_bytes),
    )


def _progress(row: Row) -> "RenderableType":
    from rich.text import Text

    if row.trouble:
        return Text("! see below", style="red")
    if row.import_percent is None:
        return Text(f"{row.variants_ready}", style="green")
    filled = round(BAR_CELLS * row.import_percent / 100)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{row.variants_ready} ")
    text.append("━" * filled, style="cyan")
    text.append("━" * (BAR_CELLS - filled), style="bright_black")
    text.append(f" {row.import_stage or 'waits'}", style="dim")
    return text


def _recognised_line(found: Recognised) -> "Text":
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{found.application:<16} ", style="bold")
    text.append(found.words)
    return text


def _footer(picture: Picture) -> "RenderableType":
    from rich.text import Text

    text = Text(overflow="fold", style="dim")
    text.append(f"API and docs  {picture.url}/docs\nadmin key     {picture.key_file}\n")
    text.append("ms: as devices see it, over HTTP, last 10 s · warm: found in memory · Ctrl-C ends")
    return text


def troubles(picture: Picture) -> Iterator[str]:
    """What is wrong, a line each."""
    for row in picture.rows:
        if row.trouble:
            yield f"{row.application}: {row.trouble}"
    for one in picture.framed:
        if one.trouble:
            yield f"{one.pipeline}: {one.trouble}"


def in_lines(picture: Picture) -> Iterator[str]:
    """The picture for a log file: a line an application."""
    yield (
        f"{picture.elapsed_s:6.0f} s  {count(len(picture.rows), 'application')}, in memory "
        f"{_megabytes(picture.resident_bytes)} of {_megabytes(picture.budget_bytes)} MB   {_computed(picture.computed)}"
    )
    for row in picture.rows:
        figures = (
            f"{row.rate_per_s:.1f}/s P50 {milliseconds(row.p50_ms)} P99 {milliseconds(row.p99_ms)} ms "
            f"accuracy {share(row.accuracy)} variant {row.variant}"
            if row.variant
            else "no answer yet"
        )
        stage = (
            "" if row.import_percent is None else f" · import {row.import_percent:.0f} % {row.import_stage}".rstrip()
        )
        trouble = f" · {row.trouble}" if row.trouble else ""
        yield f"    {f'{row.tenant}/{row.application}':<24} {figures}{stage}{trouble}"
    for framed in picture.framed:
        rate, p50, p99, in_time, items, cost = _frame_cells(framed)
        trouble = f" · {framed.trouble}" if framed.trouble else ""
        yield (
            f"    {f'{framed.tenant}/{framed.pipeline}':<24} {rate} frames/s P50 {p50} P99 {p99} ms in time {in_time} "
            f"items a frame {items} cost a frame {cost} ms{trouble}"
        )
    for one in picture.streamed:
        yield (
            f"    {f'a stream to {one.application}':<24} promised {one.promised}: {one.state}, "
            f"kept {one.kept} of {one.windows}, sent {one.sent} of {one.captured}, {one.in_time} in time"
        )


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f}"
