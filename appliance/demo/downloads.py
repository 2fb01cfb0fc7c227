"""A zoo on this machine: fetched with progress bars, and a smaller one when a registry is out of reach."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from appliance.demo.zoo import Progress, Zoo, ZooName, fetch
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

SMALLER: Mapping[ZooName, ZooName] = {"demo": "small", "small": "ci"}
"""What is tried when nothing of a zoo can be had."""


def fetched(name: ZooName, cache: Path) -> Zoo:
    """The zoo from the cache, fetched where needed, with bars on standard error."""
    with _bars() as progress:
        return fetch(name, cache, progress)


def fetched_or_smaller(name: ZooName, cache: Path) -> Zoo:
    """The zoo, or as much of it as can be had; says what is missing.

    Raises: CommandFailed when not even the smallest zoo can be made.
    """
    zoo = fetched(name, cache)
    for sentence in zoo.missing:
        screen.say(f"  without: {sentence}")
    if zoo.models:
        return zoo
    if name not in SMALLER:
        raise CommandFailed("no model of the zoo could be fetched or made; check the connection and run it again")
    screen.say(f"Nothing of the zoo {name!r} can be had now; trying the smaller zoo {SMALLER[name]!r}.")
    return fetched_or_smaller(SMALLER[name], cache)


@contextmanager
def _bars() -> Iterator[Progress]:
    """A bar for each thing under way; without a terminal a line when it begins."""
    is_seen = sys.stderr.isatty()
    columns = (TextColumn("  {task.description:<36}"), BarColumn(24), TextColumn("{task.fields[amount]}", style="dim"))
    with Bars(*columns, console=screen.console(stderr=True), disable=not is_seen) as bars:
        tasks: dict[str, TaskID] = {}

        def end_all() -> None:
            """One thing at a time: what has no size ends when the next begins."""
            for task in bars.tasks:
                bars.update(task.id, total=task.total or 1, completed=task.total or 1)

        def step(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                end_all()
                tasks[what] = bars.add_task(what, total=total, amount="")
                if not is_seen:
                    screen.say(f"  {what}" + (f" ({screen.size(total)})" if total else ""))
            amount = f"{screen.size(done)} of {screen.size(total)}" if total else ""
            bars.update(tasks[what], completed=done, total=total, amount=amount)

        yield step
        end_all()
