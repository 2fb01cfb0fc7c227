"""`appliance history`: what happened in the last hour, day or month."""

from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    import datetime

    from appliance.client import Client
    from appliance.wire.history import HistoryShape, MemoryHistoryShape, SeriesShape, StayShape

AT_ONCE = 50
"""Series of one question to the box."""
POINTS = 48
"""Of a line of the table."""
UNITS_S = {"m": 60, "h": 3600, "d": 86_400}
BARS = "▁▂▃▄▅▆▇█"


@connected
def history(
    box: Connection,
    series: Annotated[
        list[str] | None,
        typer.Argument(help="As --list names them, for example requests or p99:harbour/door; else the whole box's."),
    ] = None,
    last: Annotated[
        str, typer.Option(help="How far back: a number and m, h or d, for example 30m, 24h or 30d.")
    ] = "1h",
    listed: Annotated[bool, typer.Option("--list", help="Only say which series there are.")] = False,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory", help="Show instead which variants were in memory, from when to when, and why they left."
        ),
    ] = False,
    application: Annotated[str | None, typer.Option(help="With --memory: only this application.")] = None,
) -> None:
    """Show what happened: each series with its mean, its least and its most, and its course, the newest on the right.

    The box keeps a day at 10 seconds and a month at 5 minutes. A tenant's key sees what it asked for, its applications
    and its memory. With --json all points.

    [dim]$[/dim] appliance history
    [dim]$[/dim] appliance history --last 24h requests failed p99
    [dim]$[/dim] appliance history --memory --application door
    """
    import datetime

    length = datetime.timedelta(seconds=seconds_of(last))
    with box.client() as client:
        to = client.system().now  # its clock is the one that counts
        start = to - length
        if memory:
            found = client.memory_history(start=start, to=to, application=application)
            screen.show_json(found) if box.as_json else _show_stays(found)
            return
        known = client.history(start=start).known if listed or not series else []
        if listed:
            screen.show_json(known) if box.as_json else print(*known, sep="\n")
            return
        names = series or [name for name in known if ":" not in name]
        parts = _asked(client, names, (start, to), None if box.as_json else POINTS)
    if box.as_json:
        screen.show_json(parts[0].model_copy(update={"series": [one for part in parts for one in part.series]}))
        return
    columns = ("series", "mean>", "least>", "most>", f"{last} until now")
    screen.show_table(columns, [row(one) for part in parts for one in part.series], "There is no history yet.")


def _asked(
    client: "Client", names: list[str], period: "tuple[datetime.datetime, datetime.datetime]", points: int | None
) -> "list[HistoryShape]":
    """In questions of as many series as one may name; `points` of each."""
    at_once = AT_ONCE if points is None else min(AT_ONCE, 2000 // points)
    groups = [names[first : first + at_once] for first in range(0, len(names), at_once)] or [[]]
    return [
        client.history(
            group, start=period[0], to=period[1], points=2000 if points is None else points * max(1, len(group))
        )
        for group in groups
    ]


def seconds_of(text: str) -> float:
    """`30m`, `24h`, `30d` in seconds. Raises: CommandFailed."""
    number, unit = text[:-1], text[-1:]
    try:
        length = float(number) * UNITS_S[unit]
    except (ValueError, KeyError):
        length = 0.0
    if not 0 < length <= 3660 * UNITS_S["d"]:
        raise CommandFailed(f"'{text}' is no length of time; give a number and m, h or d, for example 24h")
    return length


def row(one: "SeriesShape") -> tuple[str, str, str, str, str]:
    """A series as a line of the table."""
    means = [value for value in one.mean if value is not None]
    least = [value for value in one.least if value is not None]
    most = [value for value in one.most if value is not None]
    if not means:
        return one.name, "–", "–", "–", ""
    mean = sum(means) / len(means)
    unit = "share" if one.name == "up" else one.unit  # of the time that the box ran
    figures = [_figure(value, unit) for value in (mean, min(least), max(most))]
    return one.name, figures[0], figures[1], figures[2], course(one.mean)


def course(values: "list[float | None]") -> str:
    """A bar for each point, from the least to the most of them; a blank where there is none."""
    known = [value for value in values if value is not None]
    low = min(known, default=0.0)
    reach = max(known, default=0.0) - low
    top = len(BARS) - 1
    places = [None if value is None else round(top * (value - low) / reach) if reach else 0 for value in values]
    return "".join(" " if place is None else BARS[place] for place in places)


def _figure(value: float, unit: str) -> str:
    match unit:
        case "bytes":
            return screen.size(value)
        case "ms":
            return f"{screen.milliseconds(value)} ms"
        case "share":
            return f"{100 * value:.1f} %"
    return f"{value:.3g} {unit}".strip()


def _show_stays(found: "MemoryHistoryShape") -> None:
    reasons = {one.decision: one.reason for one in found.decisions}
    columns = ("from (UTC)", "to", "applications", "variant", "state", "size>", "came", "went", "because")
    rows = [_stay(one, reasons) for one in found.stays]
    screen.show_table(columns, rows, "Nothing was in memory.")
    if not found.is_whole:
        screen.say("There were more; the oldest are left out.")


def _stay(one: "StayShape", reasons: dict[int, str]) -> tuple[object, ...]:
    number = one.came if one.left is None else one.left
    return (
        f"{one.since:%m-%d %H:%M:%S}",
        "" if one.until is None else f"{one.until:%m-%d %H:%M:%S}",
        ", ".join(one.applications),
        one.variant,
        one.state,
        screen.size(one.bytes),
        one.came_by,
        one.left_by,
        "" if number is None else reasons.get(number, "") or f"decision {number}",
    )
