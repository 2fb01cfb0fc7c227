"""What a person sees: tables on standard output, remarks on standard error, and numbers in units that read well."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 200
"""Columns when nobody looks: wide enough that no cell of a list is cut for a program that reads it."""


def console(*, stderr: bool = False) -> "Console":
    """A console of the terminal's width; without a terminal a wide one without colours."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else PLAIN_WIDTH, highlight=False, soft_wrap=False)


def show_json(value: Any) -> None:
    """One JSON document on standard output; shapes of the wire as the box writes them."""

    def plain(part: Any) -> Any:
        return part.model_dump(mode="json") if hasattr(part, "model_dump") else str(part)

    print(json.dumps(value, indent=2, ensure_ascii=False, default=plain))


def json_line(value: Any, width: int = 400) -> str:
    """A value as JSON on one line, cut at `width` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= width else f"{text[:width]} … (all of it: --json)"


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str | Callable[[], str]) -> None:
    """A table without frills; columns whose name ends with `>` are right-aligned.

    `empty` is said where there are no rows.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[Text("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not cells:
        say(empty if isinstance(empty, str) else empty())
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left")
    for row in cells:
        table.add_row(*row)
    console().print(table)


def say(sentence: str) -> None:
    """A remark to the person, on standard error, so that standard output stays fit for a machine."""
    print(sentence, file=sys.stderr)


def count(number: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(bytes_: float | None) -> str:
    """Bytes for people: `22.9 MB`."""
    if bytes_ is None:
        return "–"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= factor:
            return f"{bytes_ / factor:.1f} {unit}"
    return f"{bytes_:.0f} B"


def milliseconds(value: float | None) -> str:
    """A duration in ms with as many digits as matter."""
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def share(value: float | None) -> str:
    """A number of 0..1 with three digits."""
    return "–" if value is None else f"{value:.3f}"
