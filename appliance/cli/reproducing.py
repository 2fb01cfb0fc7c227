"""`appliance simulate --reproduce`: a paper's experiments in virtual time, on all processors, with progress on standard error."""

import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from appliance.lab.papers.figures import Figure
    from appliance.lab.papers.reproduce import Gap

PAPERS = ("edge-multiai",)
_CHUNK = 20

Job = TypeVar("Job")
Done = TypeVar("Done")


def reproduce(paper: str, repetitions: int, *, as_json: bool) -> None:
    """Run and print it. Raises: ValueError for a paper that is not one of `PAPERS`, or less than one repetition."""
    if paper not in PAPERS:
        raise ValueError(f"--reproduce: {paper[:80]!r} is not one of: {', '.join(PAPERS)}")
    if repetitions < 1:
        raise ValueError("--repetitions: must be >= 1")
    from appliance.lab.papers import figures
    from appliance.lab.papers.reproduce import all_cells, bound_one, gap, gap_jobs, run_one, sweep_cells

    results = dict(_spread(run_one, all_cells(repetitions), "runs"))
    swept = {cell: results[cell] for cell in sweep_cells(repetitions)}
    closed = gap(results, chain.from_iterable(_spread(bound_one, gap_jobs(swept), "bounds")))
    tables = figures.figures(results)
    if as_json:
        document = {"paper": paper, "repetitions": repetitions, "figures": [t.document() for t in tables]}
        print(json.dumps({**document, "clairvoyant": _gap_document(closed)}, ensure_ascii=False))
        return
    for table in tables:
        print(_text(table))
    print(_gap_text(closed))


def _spread(work: Callable[[Job], Done], jobs: Sequence[Job], what: str) -> Iterator[Done]:
    """In the order of the jobs; as many processes as there are processors for this one."""
    show = sys.stderr.isatty()
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        for number, done in enumerate(pool.imap(work, jobs, chunksize=min(_CHUNK, 1 + len(jobs) // 64)), 1):
            if number % (_CHUNK if show else 500) == 0 or number == len(jobs):
                print(f"{what}: {number} of {len(jobs)}", end="\r" if show else "\n", file=sys.stderr, flush=True)
            yield done
    if show:
        print(file=sys.stderr)


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
        cells = ["-" if e is None else f"{e.mean:.{digits}f} ± {e.half:.{digits}f}" for e in estimates]
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
        f"and {gap.utility_reached / gap.runs:.2f} below the plan of a clairvoyant; floors closes {utility:.0%} of the way to the bound. "
        f"Of {100 * gap.cold_open / gap.runs:.2f} points of avoidable cold starts it closes {cold:.0%}."
    )
