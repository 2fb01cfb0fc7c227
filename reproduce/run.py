"""A paper's experiments in virtual time, on all processors of this machine, with progress on standard error."""

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from appliance.resources.cores import usable_cores
from appliance.terminal.screen import console, say

if TYPE_CHECKING:
    from reproduce.claims import Claim
    from reproduce.edge_multiai.experiments import Estimate, Gap
    from reproduce.edge_multiai.figures import Figure
    from reproduce.edge_multiai.stated import Statement

PAPERS = ("arise", "band", "edge-multiai", "jellyfish", "scrooge")
_CHUNK = 20
_VERDICTS = {True: "yes", False: "NO", None: ""}

Job = TypeVar("Job")
Done = TypeVar("Done")


def reproduce(paper: str, repetitions: int, *, reference: bool, as_json: bool, profiles: Path | None = None) -> None:
    """Run the experiments of a paper and print its claims beside ours.

    `repetitions`: of each run. `reference`: also how far a clairvoyant gets, which takes longer than all else.
    `profiles`: a file of measured networks (PPipe's block_timing.csv), for those comparisons of Scrooge alone.

    Raises: ValueError for a paper that is not one of `PAPERS`, less than one repetition, or another file; OSError.
    """
    if paper not in PAPERS:
        raise ValueError(f"PAPER: {paper[:80]!r} is not one of: {', '.join(PAPERS)}")
    if repetitions < 1:
        raise ValueError("--repetitions: must be >= 1")
    if reference and paper != "edge-multiai":
        raise ValueError("--reference: goes with edge-multiai")
    if profiles is not None and paper != "scrooge":
        raise ValueError("--profiles: goes with scrooge")
    if profiles is not None:
        _reproduce_measured(profiles, repetitions, as_json=as_json)
    elif paper == "band":
        _reproduce_band(repetitions, as_json=as_json)
    elif paper in ("arise", "jellyfish", "scrooge"):
        _reproduce_claims(paper, repetitions, as_json=as_json)
    else:
        _reproduce_edge_multiai(repetitions, reference=reference, as_json=as_json)


def _reproduce_band(repetitions: int, *, as_json: bool) -> None:
    from reproduce.band.experiments import jobs, run_job
    from reproduce.band.stated import by_repetition, statements

    found = statements(by_repetition(_spread(run_job, jobs(repetitions), "runs")))
    if as_json:
        facts = {"paper": "band", "repetitions": repetitions, "stated": [one.document() for one in found]}
        print(json.dumps(facts, ensure_ascii=False))
        return
    lines = [
        "## What the paper states",
        "",
        f"{_over_repetitions(repetitions)} The phone is emulated. Fitted: it was made to give these numbers; "
        "predicted: it was not. At most: what no policy gets above.",
        "",
        "| section | what | paper | | ours | at most | asked | reached |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        asked = "" if one.asked is None else f">= {one.asked:g}"
        most = "" if one.ceiling is None else _estimate_text(one.ceiling, 2)
        ours = _estimate_text(one.ours, 2)
        cells = (one.section, one.what, one.paper, one.basis, ours, most, asked, _VERDICTS[one.holds])
        lines.append(f"| {' | '.join(cells)} |")
    print("\n".join(lines))


_EMULATED = {
    "arise": "The box, its processor, the links and the devices are emulated.",
    "jellyfish": "The box, its processor, the links and the devices are emulated.",
    "scrooge": "The cluster and its clients are emulated; what is given, fitted and assumed stands in "
    "`reproduce/scrooge/applications.py`.",
}


def _reproduce_claims(paper: str, repetitions: int, *, as_json: bool) -> None:
    """Of the papers whose experiments give numbers by name."""
    from reproduce.arise import experiments as arise
    from reproduce.arise.stated import statements as stated_by_arise
    from reproduce.claims import by_repetition, jobs_of
    from reproduce.jellyfish import experiments as jellyfish
    from reproduce.jellyfish.stated import statements as stated_by_jellyfish
    from reproduce.scrooge import experiments as scrooge
    from reproduce.scrooge.stated import statements as stated_by_scrooge

    experiments, run_job, statements = {
        "arise": (arise.EXPERIMENTS, arise.run_job, stated_by_arise),
        "jellyfish": (jellyfish.EXPERIMENTS, jellyfish.run_job, stated_by_jellyfish),
        "scrooge": (scrooge.EXPERIMENTS, scrooge.run_job, stated_by_scrooge),
    }[paper]
    jobs = jobs_of([*experiments], repetitions)
    found = statements(by_repetition([*_spread(run_job, jobs, "runs")]))
    _print_claims(paper, found, _EMULATED[paper], repetitions, as_json=as_json)


def _reproduce_measured(profiles: Path, repetitions: int, *, as_json: bool) -> None:
    from reproduce.claims import by_repetition, jobs_of
    from reproduce.scrooge import measured

    jobs = jobs_of([*measured.experiments_of(profiles)], repetitions)
    found = measured.statements(by_repetition([*_spread(partial(measured.run_job, profiles), jobs, "runs")]))
    emulated = f"The cluster and its clients are emulated; run times are those of {profiles.name}."
    _print_claims("scrooge", found, emulated, repetitions, as_json=as_json)


def _print_claims(paper: str, found: "Sequence[Claim]", emulated: str, repetitions: int, *, as_json: bool) -> None:
    """What the paper says, or what is asked of us, beside what our runs give."""
    if as_json:
        facts = {"paper": paper, "repetitions": repetitions, "stated": [one.document() for one in found]}
        print(json.dumps(facts, ensure_ascii=False))
        return
    lines = [
        "## What the paper states",
        "",
        f"{_over_repetitions(repetitions)} {emulated}",
        "",
        "| section | what | paper | ours | asked | reached |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        cells = (one.section, one.what, one.paper, _estimate_text(one.ours, 2), one.asked, _VERDICTS[one.holds])
        lines.append(f"| {' | '.join(cells)} |")
    print("\n".join(lines))


def _reproduce_edge_multiai(repetitions: int, *, reference: bool, as_json: bool) -> None:
    from reproduce.edge_multiai import figures, stated
    from reproduce.edge_multiai.experiments import all_cells, bound_one, gap, gap_jobs, run_one, sweep_cells

    results = dict(_spread(run_one, all_cells(repetitions), "runs"))
    tables, statements = figures.figures(results), stated.statements(results)
    nearest_mb = stated.nearest_memory_mb(results)
    closed = None
    if reference:
        swept = {cell: results[cell] for cell in sweep_cells(repetitions)}
        closed = gap(results, chain.from_iterable(_spread(bound_one, gap_jobs(swept), "bounds")))
    if as_json:
        document: dict[str, Any] = {"paper": "edge-multiai", "repetitions": repetitions}
        document |= {"nearest_memory_mb": nearest_mb}
        document |= {"stated": [one.document() for one in statements], "figures": [t.document() for t in tables]}
        document["clairvoyant"] = _gap_document(closed) if closed else None
        print(json.dumps(document, ensure_ascii=False))
        return
    print(stated_text(statements, nearest_mb, repetitions))
    for table in tables:
        print(_text(table))
    if closed:
        print(_gap_text(closed))


def _spread(work: Callable[[Job], Done], jobs: Sequence[Job], what: str) -> Iterator[Done]:
    """In the order of the jobs; as many processes as there are processors for this one."""
    with (
        multiprocessing.get_context("spawn").Pool(usable_cores().count) as pool,
        counted(what, len(jobs)) as step,
    ):
        for done in pool.imap(work, jobs, chunksize=min(_CHUNK, 1 + len(jobs) // 64)):
            step()
            yield done


_LINE_EVERY_S = 30


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Call what it gives after each job: a bar on standard error; without one a line now and every half minute."""
    if not sys.stderr.isatty():
        yield _lines(what, total)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console(stderr=True)) as bars:
        task = bars.add_task(what, total=total)
        yield lambda: bars.advance(task)


def _lines(what: str, total: int) -> Callable[[], None]:
    from appliance.clock import NS_PER_S, SystemClock

    clock = SystemClock()
    said_ns = start_ns = clock.now_ns()
    done = 0
    say(f"{what}: {total} to do")

    def step() -> None:
        nonlocal done, said_ns
        done += 1
        now_ns = clock.now_ns()
        if done == total or now_ns - said_ns >= _LINE_EVERY_S * NS_PER_S:
            said_ns = now_ns
            elapsed_s = (now_ns - start_ns) / NS_PER_S
            left_s = elapsed_s * (total - done) / done
            say(f"{what}: {done} of {total}, {elapsed_s:.0f} s, about {left_s:.0f} s left")

    return step


def stated_text(statements: "Sequence[Statement]", nearest_mb: float, repetitions: int) -> str:
    """A Markdown table of what the paper states beside what we find."""
    lines = [
        "## What the paper states",
        "",
        f"{_over_repetitions(repetitions)} The paper names no memory: the mean over all, and {nearest_mb:.0f} MB, "
        "whose cold starts are nearest to its.",
        "",
        f"| section | what | paper | ours, all memories | ours, {nearest_mb:.0f} MB | reached |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in statements:
        cells = [_estimate_text(one.overall, 2), _estimate_text(one.nearest, 2), _VERDICTS[one.holds]]
        lines.append(f"| {one.section} | {one.what} | {one.paper} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _over_repetitions(repetitions: int) -> str:
    none = " (one repetition has none)" if repetitions == 1 else ""
    return f"{repetitions} repetitions, ± half of the 95 % interval over them{none}."


def _estimate_text(estimate: "Estimate | None", digits: int) -> str:
    """One repetition has no interval."""
    if estimate is None:
        return "-"
    return f"{estimate.mean:.{digits}f}" + (f" ± {estimate.half:.{digits}f}" if estimate.half else "")


def _text(figure: "Figure") -> str:
    """A Markdown table: mean ± half of the 95 % confidence interval."""
    digits = 2 if figure.number == "8" else 1
    lines = [
        f"## Figure {figure.number}: {figure.title}",
        "",
        f"| {figure.left} | {' | '.join(figure.columns)} |",
        "| --- |" + " --- |" * len(figure.columns),
    ]
    for name, estimates in figure.rows:
        cells = [_estimate_text(estimate, digits) for estimate in estimates]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Paper: {figure.paper}.", f"Here: {figure.found}.", ""])


def _gap_document(gap: "Gap") -> dict[str, Any]:
    return {
        "runs": gap.runs,
        "utility_gap": gap.utility_open / gap.runs,
        "utility_gap_to_plan": gap.utility_reached / gap.runs,
        "utility_share_closed": gap.utility_share,
        "cold_gap": gap.cold_open / gap.runs,
        "cold_share_closed": gap.cold_share,
    }


def _gap_text(gap: "Gap") -> str:
    utility, cold = (0.0 if share is None else share for share in (gap.utility_share, gap.cold_share))
    return (
        "## Our policy between iws-bfe and the clairvoyant\n\n"
        f"Over {gap.runs} runs iws-bfe's utility is {gap.utility_open / gap.runs:.2f} below the bound "
        f"and {gap.utility_reached / gap.runs:.2f} below the plan of a clairvoyant; expected-utility closes "
        f"{utility:.0%} of the way to the bound. "
        f"Of {100 * gap.cold_open / gap.runs:.2f} points of avoidable cold starts it closes {cold:.0%}."
    )
