"""What is in memory as a picture for a person: a bar of the budget, a row a build and application, a row a tenant."""

import string
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from appliance.terminal.screen import count, size
from appliance.wire.box import BuildShape, ExpectationShape, HoldingShape, MemoryShape

LETTERS = string.ascii_uppercase + string.ascii_lowercase
MANY = "#"
"""Stands for every build beyond the letters."""
UNSEEN, BESIDE, RUNS, FREE = "?", "+", "%", "·"
"""Models of other tenants, processes beside models, runs under way, and what is free."""
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
BAR_WIDTH_MAX = 100
NONE = "–"
SETS = {"maximalist": "inside", "minimalist": "outside"}
"""Where an application stands to its window, by its set."""


def picture(memory: MemoryShape, width: int) -> RenderableType:
    """Everything, at most `width` columns wide."""
    builds = sorted(memory.builds, key=lambda build: (-build.bytes, build.build))
    return Group(
        Text(_summary(memory)),
        bar(memory, builds, min(width, BAR_WIDTH_MAX)),
        *(Text(line) for line in _key(memory)),
        Text(""),
        _table(
            ("", "application", "variant", "MB>", "state", "window", "expected>", "pins>", "idle>"),
            _rows(memory, builds),
        ),
        Text(""),
        _table(
            ("tenant", "holds>", "of budget>", "guarantee>", "ceiling>"),
            (_share(one, memory) for one in memory.tenants),
        ),
    )


def bar(memory: MemoryShape, builds: Sequence[BuildShape], width: int) -> Text:
    """The budget from left to right: each build by its letter, builds that the key does not see, processes beside
    models, runs under way, then free memory. A part below half a cell is not drawn.
    """
    parts = [(letter(index), build.bytes, COLOURS[index % len(COLOURS)]) for index, build in enumerate(builds)]
    parts += [(UNSEEN, unseen_bytes(memory), ""), (BESIDE, memory.overhead_bytes, ""), (RUNS, run_bytes(memory), "")]
    whole = max(memory.budget_bytes, sum(taken for _, taken, _ in parts), 1)
    inside = width - 2
    edges = [round(at / whole * inside) for at in accumulate((taken for _, taken, _ in parts), initial=0)]
    text = Text("[")
    for (mark, _, style), (start, end) in zip(parts, pairwise(edges), strict=True):
        text.append(mark * (end - start), style=style)
    return text.append(FREE * (inside - edges[-1])).append("]")


def unseen_bytes(memory: MemoryShape) -> int:
    """Return the bytes of models that this key does not see."""
    return max(0, memory.used_bytes - memory.overhead_bytes - sum(build.bytes for build in memory.builds))


def run_bytes(memory: MemoryShape) -> int:
    """Return the bytes of the budget that runs take; what is more, the machine has beside the budget."""
    return min(memory.runs_bytes, max(0, memory.budget_bytes - memory.used_bytes))


def letter(index: int) -> str:
    """What stands for a build in the bar and in its rows."""
    return LETTERS[index] if index < len(LETTERS) else MANY


def megabytes(bytes_: int) -> str:
    """With one digit behind the point, or as many as it takes to see that there is something."""
    mb = bytes_ / 1e6
    return f"{mb:.1f}" if mb >= 0.05 or not mb else f"{mb:.2g}" if mb >= 0.0001 else "< 0.0001"


def duration(ms: float | None) -> str:
    """Seconds, or minutes from two of them on; negative for what is overdue."""
    if ms is None:
        return NONE
    seconds = ms / 1000
    return f"{seconds:.1f} s" if abs(seconds) < 120 else f"{seconds / 60:.0f} min"


def _summary(memory: MemoryShape) -> str:
    beside = f", of which other processes take {size(memory.overhead_bytes)}" if memory.overhead_bytes else ""
    asleep = sum(build.state == "asleep" for build in memory.builds)
    sleepers = f", of them {asleep} asleep ({size(memory.asleep_bytes)})" if asleep else ""
    return (
        f"{size(memory.used_bytes)} of {size(memory.budget_bytes)}{beside}, "
        f"{count(len(memory.builds), 'build')}{sleepers}; since the start "
        f"{count(memory.loads, 'load')} ({memory.load_failures} failed), {count(memory.wakes, 'wake')}, "
        f"{count(memory.evictions, 'eviction')}, of them {count(memory.replacements, 'replacement')}"
    )


def _key(memory: MemoryShape) -> Iterator[str]:
    """Lines on what of the bar has no row of its own."""
    if memory.beside:
        yield f"{BESIDE} other processes: {', '.join(f'{one.of} {size(one.bytes)}' for one in memory.beside)}"
    if runs := run_bytes(memory):
        yield f"{RUNS} runs under way: {size(runs)}"
    if unseen := unseen_bytes(memory):
        yield f"{UNSEEN} models of other tenants: {size(unseen)}"


def _rows(memory: MemoryShape, builds: Sequence[BuildShape]) -> Iterator[Sequence[object]]:
    """What is in memory, the largest first, then applications of which nothing is."""
    places = {row.application: row for row in memory.residency.applications}
    for index, build in enumerate(builds):
        for number, name in enumerate(build.applications or [NONE]):
            facts = (build.variant or NONE, megabytes(build.bytes), build.state) if number == 0 else ('"', '"', '"')
            use = (build.pins, duration(build.idle_ms)) if number == 0 else ('"', '"')
            yield (letter(index), name, *facts, *_place(places.get(name)), *use)
    there = {name for build in builds for name in build.applications}
    for name, row in places.items():
        if name not in there:
            yield ("", name, NONE, NONE, "absent", *_place(row), NONE, NONE)


def _place(row: ExpectationShape | None) -> tuple[str, str]:
    """Whether it is inside its window, and when it is expected; unknown where it shares the place of another."""
    return (NONE, NONE) if row is None else (SETS.get(row.set, row.set), duration(row.expected_in_ms))


def _share(holding: HoldingShape, memory: MemoryShape) -> Sequence[object]:
    part = f"{holding.held_bytes / max(1, memory.budget_bytes):.0%}"
    return (
        holding.tenant,
        size(holding.held_bytes),
        part,
        size(holding.guarantee_bytes or None),
        size(holding.ceiling_bytes),
    )


def _table(columns: Sequence[str], rows: "Iterator[Sequence[object]]") -> Table:
    """As narrow as it can be; columns whose name ends with `>` are right-aligned; long names are broken, never cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        name = column.removesuffix(">")
        table.add_column(name, justify="right" if name != column else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table
