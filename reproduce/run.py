"""A paper's experiments in virtual time, on all processors of this machine, with progress on standard error."""

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from appliance.resources.cores import usable_cores
from appliance.terminal.screen import console, say
from reproduce.claims import Claim, Estimate, Figure, Numbers, Paper

PAPERS = {
    "arise": "reproduce.arise",
    "band": "reproduce.band.experiments",
    "edge-multiai": "reproduce.edge_multiai.experiments",
    "jellyfish": "reproduce.jellyfish",
    "scrooge": "reproduce.scrooge.experiments",
}
"""The module of each, whose `PAPER` it is."""
_CHUNK = 20
_LINE_EVERY_S = 30
_VERDICTS = {True: "yes", False: "NO", None: ""}

Job = TypeVar("Job")
Done = TypeVar("Done")


def reproduce(paper: str, repetitions: int, *, reference: bool, as_json: bool, profiles: Path | None) -> None:
    """Run the experiments of a paper and print its claims beside ours.

    `repetitions`: of each run. `reference`: also how far a clairvoyant gets, which takes longer than all else.
    `profiles`: a file of measured networks (PPipe's block_timing.csv), for those comparisons of Scrooge alone.

    Raises: ValueError for another file; OSError.
    """
    made = _paper(paper, profiles)
    jobs = [(name, number) for number in range(1, repetitions + 1) for name in made.experiments]
    numbers: list[dict[str, float]] = [{} for _ in range(repetitions)]
    for (_, number), found in zip(jobs, _spread(partial(_run, paper, profiles), jobs, "runs"), strict=True):
        numbers[number - 1].update(found)
    claims, tables = made.statements(numbers), made.figures(numbers)
    closed = None
    if reference:
        from reproduce.edge_multiai import clairvoyant

        bounds = _spread(clairvoyant.bound_one, clairvoyant.gap_jobs(numbers), "bounds")
        closed = clairvoyant.gap(numbers, chain.from_iterable(bounds))
    if as_json:
        stated, figures = [one.document() for one in claims], [one.document() for one in tables]
        facts: dict[str, Any] = {"paper": paper, "repetitions": repetitions, "stated": stated, "figures": figures}
        print(json.dumps({**facts, "clairvoyant": closed}, ensure_ascii=False))
        return
    print(stated_text(claims, made.remark, repetitions))
    for table in tables:
        print(_figure_text(table))
    if closed:
        print(clairvoyant.gap_text(closed))


def _paper(paper: str, profiles: Path | None) -> Paper:
    """Import the experiments of a paper, and of no other."""
    if profiles is not None:
        from reproduce.scrooge import measured

        return measured.paper_of(profiles)
    found: Paper = import_module(PAPERS[paper]).PAPER
    return found


def _run(paper: str, profiles: Path | None, job: tuple[str, int]) -> Numbers:
    """Run an experiment in a process of the pool."""
    experiment, repetition = job
    return _paper(paper, profiles).experiments[experiment](repetition)


def _spread(work: Callable[[Job], Done], jobs: Sequence[Job], what: str) -> Iterator[Done]:
    """In the order of the jobs; as many processes as there are processors for this one."""
    with (
        multiprocessing.get_context("spawn").Pool(usable_cores().count) as pool,
        counted(what, len(jobs)) as step,
    ):
        for done in pool.imap(work, jobs, chunksize=min(_CHUNK, 1 + len(jobs) // 64)):
            step()
            yield done


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Call what it gives after each job: a bar on standard error; without one a line now and every half minute."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn())
    times, is_shown = (TimeElapsedColumn(), TimeRemainingColumn()), sys.stderr.isatty()
    with Progress(*columns, *times, console=console(stderr=True), disable=not is_shown) as bars:
        bars.add_task(what, total=total)
        (task,) = bars.tasks
        said_s = 0.0
        if not is_shown:
            say(f"{what}: {total} to do")

        def step() -> None:
            nonlocal said_s
            bars.advance(task.id)
            elapsed_s = task.elapsed or 0.0
            if not is_shown and (task.finished or elapsed_s - said_s >= _LINE_EVERY_S):
                said_s = elapsed_s
                left_s = elapsed_s * task.remaining / task.completed if task.remaining else 0.0
                say(f"{what}: {task.completed:.0f} of {total}, {elapsed_s:.0f} s, about {left_s:.0f} s left")

        yield step


def stated_text(claims: Sequence[Claim], remark: str, repetitions: int) -> str:
    """A Markdown table of what the paper states beside what our runs give."""
    none = " (one repetition has none)" if repetitions == 1 else ""
    spread = f"{repetitions} repetitions, ± half of the 95 % interval over them{none}."
    beside = [*dict.fromkeys(name for one in claims for name in one.beside)]
    rows = [["section", "what", "paper", "ours", *(name.replace("_", " ") for name in beside), "asked", "reached"]]
    for one in claims:
        more = ("" if one.beside.get(name) is None else _cell(one.beside[name]) for name in beside)
        rows.append([one.section, one.what, one.paper, _cell(one.ours), *more, one.asked, _VERDICTS[one.holds]])
    return f"## What the paper states\n\n{spread} {remark}\n\n{_table(rows)}\n"


def _figure_text(figure: Figure) -> str:
    """A Markdown table: mean ± half of the 95 % confidence interval."""
    rows = [[name, *(_cell(one, figure.digits) for one in found)] for name, found in figure.rows.items()]
    table = _table([[figure.left, *figure.columns], *rows])
    title = f"## Figure {figure.number}: {figure.title}"
    return f"{title}\n\n{table}\n\nPaper: {figure.paper}.\nHere: {figure.found}.\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown; the first row is the head."""
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *others))


def _cell(value: Estimate | str | None, digits: int = 2) -> str:
    return value.text(digits) if isinstance(value, Estimate) else value or "-"
