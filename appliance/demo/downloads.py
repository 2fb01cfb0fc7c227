"""A zoo on this machine: fetched with progress bars, and a smaller one when a registry is out of reach."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from rich.progress import TaskID

    from appliance.demo.zoo import Progress, Zoo, ZooName

SMALLER: "Mapping[ZooName, ZooName]" = {"demo": "small", "small": "ci"}
"""What is tried when nothing of a zoo can be had."""


def fetched(name: "ZooName", cache: Path) -> "Zoo":
    """The zoo from the cache, fetched where needed, with bars on standard error."""
    from appliance.demo.zoo import fetch

    with _bars() as progress:
        return fetch(name, cache, progress)


def fetched_or_smaller(name: "ZooName", cache: Path) -> "Zoo":
    """The zoo, or as much of it as can be had; says what is missing.

    Raises: CommandFailed when not even the smallest zoo can be made.
    """
    wanted: ZooName | None = name
    while wanted is not None:
        zoo = fetched(wanted, cache)
        for sentence in zoo.missing:
            screen.say(f"  without: {sentence}")
        if zoo.models:
            return zoo
        smaller = SMALLER.get(wanted)
        if smaller:
            screen.say(f"Nothing of the zoo {wanted!r} can be had now; trying the smaller zoo {smaller!r}.")
        wanted = smaller
    raise CommandFailed(
        f"no model of the zoo {name!r} could be fetched or made; check the connection and run the command again"
    )


@contextmanager
def _bars() -> Iterator["Progress"]:
    """A bar for each thing under way; without a terminal a line when it begins."""
    if not sys.stderr.isatty():
        yield _said_once()
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("  {task.description:<36}"), BarColumn(24), TextColumn("{task.fields[amount]}", style="dim"))
    with Bars(*columns, console=screen.console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def step(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                for task in bars.tasks:  # one thing at a time: what has no size ends when the next begins
                    bars.update(task.id, total=task.total or 1, completed=task.total or 1)
                tasks[what] = bars.add_task(what, total=total, amount="")
            amount = f"{screen.size(done)} of {screen.size(total)}" if total else ""
            bars.update(tasks[what], completed=done, total=total, amount=amount)

        yield step
        for task in bars.tasks:
            bars.update(task.id, total=task.total or 1, completed=task.total or 1)


def _said_once() -> "Progress":
    said: set[str] = set()

    def step(what: str, done: int, total: int | None) -> None:
        if what not in said:
            said.add(what)
            screen.say(f"  {what}" + (f" ({screen.size(total)})" if total else ""))

    return step
