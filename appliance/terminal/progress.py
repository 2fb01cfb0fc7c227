"""Progress of something long: a bar for a person, plain lines for a log; both on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from appliance.terminal import screen


class Step(Protocol):
    """Shows progress of one thing."""

    def __call__(self, done: float, total: float | None, remark: str) -> None: ...


@contextmanager
def progress(title: str, *, of_bytes: bool) -> Iterator[Step]:
    """A bar on standard error; without a terminal a line for each new remark or tenth."""
    if not sys.stderr.isatty():
        yield _lines(title)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TransferSpeedColumn

    amount = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (TaskProgressColumn(),)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(24),
        *amount,
        TextColumn("{task.fields[remark]}", style="dim"),
        console=screen.console(stderr=True),
        transient=False,
    ) as bars:
        task = bars.add_task(title, total=None, remark="")

        def step(done: float, total: float | None, remark: str) -> None:
            bars.update(task, completed=done, total=total, remark=remark)

        yield step


def _lines(title: str) -> Step:
    """A line for each new remark; without remarks one for each tenth."""
    said: set[str] = set()

    def step(done: float, total: float | None, remark: str) -> None:
        percent = f"{100 * done / total:3.0f} %" if total else ""
        mark = remark or percent[:2]
        if mark not in said:
            said.add(mark)
            screen.say(f"{title}  {percent}  {remark}".rstrip())

    return step
