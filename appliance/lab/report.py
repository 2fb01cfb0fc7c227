"""`--report`: what happened in a simulation as one page that needs no network: memory over time, warm and cold
starts, decisions and why.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from appliance.clock import NS_PER_S
from appliance.lab.journal import Entry
from appliance.lab.outcome import Answer
from appliance.lab.scenario import Scenario, megabytes
from appliance.lab.simulation import Run
from appliance.lab.timeline import Stay, Timeline, by_model, columns, levels, timeline_of
from appliance.policies.residency import DEFAULT
from appliance.policies.residency.base import ResidencyPlan, ResidencyProblem

HUES = ("#3b6fb6", "#d9822b", "#3f9a6b", "#b8455e", "#7b5ea7", "#5aa9bd", "#a08030", "#8c8c94")
"""Told apart by people with the common colour blindnesses; the lane's label says the name as well."""
KINDS = {kind: f"var(--{kind})" for kind in ("warm", "cold", "failed", "dropped")}
"""How a request ended → its colour, which differs by light and dark."""
DECISIONS_MAX = 1000
_COLUMNS = 900
_DEFAULT = "default/"
_LEFT, _WIDTH, _STACK, _LANE = 150, 900, 240, 34


def report(scenario: Scenario, run: Run, title: str) -> str:
    """The page as HTML."""
    document: dict[str, Any] = run.outcome.document()
    end_ns = run.outcome.end_ns
    timeline = timeline_of(scenario, run.journal, end_ns)
    policy = scenario.policies.get("eviction", DEFAULT)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=sub>policy <b>{escape(policy)}</b>, seed {scenario.seed}, {end_ns / NS_PER_S:.0f} s, "
        f"{len(scenario.applications)} applications in {scenario.budget_bytes / 1e6:g} MB</p>",
        _tiles(document),
        "<h2>Memory</h2>",
        _memory(scenario, timeline, run.outcome.answers),
        "<h2>Applications</h2>",
        _applications(document),
        "<h2>Decisions</h2>",
        _decisions(run.journal.decisions),
    ]
    return _PAGE.format(title=escape(title), style=_STYLE, body="\n".join(parts))


# -- figures -----------------------------------------------------------------------------------------------------------


def _tiles(document: Mapping[str, Any]) -> str:
    requests = document["requests"] or 1
    lost = document["failed"] + document["dropped"]
    figures = [
        ("requests", f"{document['requests']:,}", ""),
        ("warm", f"{document['warm'] / requests:.2%}", f"{document['warm']:,}"),
        ("cold", f"{document['cold'] / requests:.2%}", f"{document['cold']:,}"),
        ("failed or dropped", f"{lost / requests:.2%}", f"{document['failed']:,} + {document['dropped']:,}"),
        (
            "utility",
            _number(document["utility"]),
            f"accuracy or agreement of the answers {_number(document['accuracy_mean'])}",
        ),
        (
            "latency P50 / P99",
            f"{_number(document['latency_ms']['p50'])} / {_number(document['latency_ms']['p99'])} ms",
            "",
        ),
        (
            "loads",
            f"{document['loads']:,}",
            f"{document['wakes']:,} wakes, {document['replacements']} replacements, {document['evictions']} evictions",
        ),
        ("wait mean / P99", f"{_number(document['wait_ms']['mean'])} / {_number(document['wait_ms']['p99'])} ms", ""),
        ("memory peak", f"{document['memory_peak_mb']:.1f} MB", ""),
    ]
    tiles = "".join(
        f"<div class=tile><span>{name}</span><b>{value}</b><i>{detail}</i></div>" for name, value, detail in figures
    )
    return f"<div class=tiles>{tiles}</div>"


def _applications(document: Mapping[str, Any]) -> str:
    most = max((a["requests"] for a in document["applications"].values()), default=0) or 1
    rows = "".join(_application(name, figures, most) for name, figures in document["applications"].items())
    legend = "".join(f"<span><i style='background:{colour}'></i>{kind}</span>" for kind, colour in KINDS.items())
    numbers = (*KINDS, "accuracy or agreement", "utility", "P50 ms", "P99 ms")
    head = "<tr><th>application<th>" + "".join(f"<th class=n>{name}" for name in numbers)
    return f"<div class=legend>{legend}</div><div class=wide><table>{head}{rows}</table></div>"


def _application(name: str, figures: Mapping[str, Any], most: int) -> str:
    bar = "".join(
        f"<i style='width:{100 * figures[kind] / most:.3f}%;background:{colour}' title='{figures[kind]} {kind}'></i>"
        for kind, colour in KINDS.items()
        if figures[kind]
    )
    cells = [
        *(f"{figures[kind]:,}" for kind in KINDS),
        _number(figures["accuracy_mean"]),
        _number(figures["utility"]),
        _number(figures["latency_ms"]["p50"]),
        _number(figures["latency_ms"]["p99"]),
    ]
    numbers = "".join(f"<td class=n>{cell}" for cell in cells)
    return f"<tr><td>{escape(name)}<td class=bar><div>{bar}</div>{numbers}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


# -- memory ------------------------------------------------------------------------------------------------------------


def _memory(scenario: Scenario, timeline: Timeline, answers: Sequence[Answer]) -> str:
    """A stack of what is resident under the budget line, and below it one lane per model: windows, variants,
    requests that were not warm.
    """
    models = list(dict.fromkeys(a.model for a in scenario.applications))
    colours = {model: HUES[i % len(HUES)] for i, model in enumerate(models)}
    rows = levels(timeline, models, _COLUMNS)
    top = max([scenario.budget_bytes, *(used for _, used in timeline.used)]) * 1.06
    height = 20 + _STACK + 36 + _LANE * len(models) + 10
    beside = megabytes(scenario.box.overhead_mb)
    shapes = [*_axis(timeline, top, height), *_processes(beside, top), *_stack(rows, models, colours, top, beside)]
    shapes += _budget(timeline, top)
    windows = by_model(timeline.windows)
    applications = {m: [a.name for a in scenario.applications if a.model == m] for m in models}
    for index, model in enumerate(models):
        y = 20 + _STACK + 36 + _LANE * index
        spans = columns(windows.get(model, []), timeline.end_ns, _COLUMNS)
        marks = [a for a in answers if a.application in applications[model] and a.kind != "warm"]
        shapes += _lane(model, applications[model], colours[model], y, [row[index] for row in rows], spans)
        shapes += _marks(marks, y, timeline.end_ns)
    svg = f"<svg viewBox='0 0 {_LEFT + _WIDTH + 20} {height}' role=img aria-label='Memory over time'>{''.join(shapes)}</svg>"
    return f"<div class=wide>{svg}</div><p class=sub>{_KEY}</p>"


_KEY = (
    "Above: memory of the variants that are loaded, stacked on that of guards and other processes (grey); the fainter, the smaller the variant. Below: one lane per model; grey behind it = inside a window (a request is "
    "expected), bar = the variant in memory, ticks = requests that were <b class=cold>cold</b>, <b class=failed>failed</b> or "
    "<b class=dropped>dropped</b>. Point at a bar for its name."
)


def _axis(timeline: Timeline, top: float, height: int) -> Iterable[str]:
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = _LEFT + _WIDTH * share
        label = f"{timeline.end_ns / NS_PER_S * share:.0f} s"
        yield f"<line class=grid x1={x:.1f} x2={x:.1f} y1=20 y2={height - 10} />"
        yield f"<text x={x:.1f} y={20 + _STACK + 16} text-anchor=middle>{label}</text>"
        size = top / 1.06 * share
        yield f"<text x={_LEFT - 8} y={_y(size, top) + 4:.1f} text-anchor=end>{size / 1e6:.0f} MB</text>"


def _budget(timeline: Timeline, top: float) -> Iterable[str]:
    """A line that steps where the budget changed."""
    points: list[str] = []
    ends = [at_ns for at_ns, _ in timeline.budgets[1:]] + [timeline.end_ns]
    for (start_ns, budget), stop_ns in zip(timeline.budgets, ends, strict=True):
        points += [
            f"{_LEFT + _WIDTH * at_ns / max(1, timeline.end_ns):.1f},{_y(budget, top):.1f}"
            for at_ns in (start_ns, stop_ns)
        ]
    yield f"<polyline class=budget points='{' '.join(points)}' />"
    first = timeline.budgets[0][1]
    yield f"<text class=budget x={_LEFT + 4} y={_y(first, top) - 4:.1f}>budget {first / 1e6:g} MB</text>"


def _processes(count_bytes: int, top: float) -> Iterable[str]:
    """Yield the rectangle of guards and other processes beside builds."""
    if count_bytes:
        size = f"x={_LEFT} y={_y(count_bytes, top):.1f} width={_WIDTH} height={_STACK * count_bytes / top:.1f}"
        title = f"guards and other processes: {count_bytes / 1e6:.1f} MB"
        yield f"<rect class=processes {size}><title>{title}</title></rect>"


def _stack(
    rows: Sequence[tuple[Stay | None, ...]],
    models: Sequence[str],
    colours: Mapping[str, str],
    top: float,
    beside: int,
) -> Iterable[str]:
    """Yield a rectangle for each variant in memory, above the processes that take `beside` bytes."""
    for first, last in _runs([tuple(s and (s.model, s.variant) for s in row) for row in rows]):
        base = beside
        for model, stay in zip(models, rows[first], strict=True):
            if stay is not None:
                title = f"{model} {stay.variant}: {stay.size_bytes / 1e6:.1f} MB"
                yield _box(
                    first,
                    last,
                    _y(base + stay.size_bytes, top),
                    _STACK * stay.size_bytes / top,
                    colours[model],
                    stay.rank,
                    title,
                )
                base += stay.size_bytes


def _lane(
    model: str,
    applications: Sequence[str],
    colour: str,
    y: float,
    row: Sequence[Stay | None],
    windows: Sequence[tuple[int, int]],
) -> Iterable[str]:
    label = ", ".join(applications)
    short = label if len(label) <= 22 else f"{label[:21]}…"
    yield f"<text x={_LEFT - 8} y={y + 18} text-anchor=end>{escape(short)}<title>{escape(label)}</title></text>"
    for first, last in windows:
        yield f"<rect class=window x={_x(first):.1f} y={y} width={_x(last) - _x(first):.1f} height={_LANE - 4} />"
    for first, last in _runs([s and s.variant for s in row]):
        stay = row[first]
        if stay is not None:
            seconds = f"from {stay.start_ns / NS_PER_S:.1f} s to {stay.end_ns / NS_PER_S:.1f} s"
            yield _box(first, last, y + 7, _LANE - 18, colour, stay.rank, f"{model} {stay.variant} {seconds}")
            if _x(last) - _x(first) > 8 * len(stay.variant):
                yield f"<text class=variant x={_x(first) + 4:.1f} y={y + 18.5}>{escape(stay.variant)}</text>"


def _marks(answers: Sequence[Answer], y: float, end_ns: int) -> Iterable[str]:
    seen = {(a.kind, a.at_ns * _COLUMNS // max(1, end_ns)) for a in answers}
    for kind, column in sorted(seen):
        x = _x(column)
        yield f"<line x1={x:.1f} x2={x:.1f} y1={y} y2={y + _LANE - 4} class={kind}><title>{kind}</title></line>"


def _runs(values: Sequence[object]) -> Iterable[tuple[int, int]]:
    """[first, last) of equal neighbours."""
    first = 0
    for index in range(1, len(values) + 1):
        if index == len(values) or values[index] != values[first]:
            yield first, index
            first = index


def _box(first: int, last: int, y: float, height: float, colour: str, rank: int, title: str) -> str:
    opacity = max(0.3, 0.95 - 0.3 * rank)
    size = f"x={_x(first):.1f} y={y:.1f} width={_x(last) - _x(first):.1f} height={height:.1f}"
    return f"<rect {size} fill='{colour}' fill-opacity={opacity:.2f}><title>{escape(title)}</title></rect>"


def _x(column: int) -> float:
    return _LEFT + _WIDTH * column / _COLUMNS


def _y(size: float, top: float) -> float:
    return 20 + _STACK * (1 - size / top)


# -- decisions ---------------------------------------------------------------------------------------------------------


def _decisions(entries: Sequence[Entry]) -> str:
    """Those of the residency policy, the first so many; the rest is counted."""
    rows = [row for entry in entries if (row := _decision(entry)) is not None]
    more = f"<p class=sub>{len(rows) - DECISIONS_MAX:,} more are not shown.</p>" if len(rows) > DECISIONS_MAX else ""
    if not rows:
        return "<p class=sub>There was nothing to decide.</p>"
    head = "<tr><th class=n>time<th>for<th>intent<th>outcome<th>changes<th>why"
    return f"<div class=scroll><table>{head}{''.join(rows[:DECISIONS_MAX])}</table></div>{more}"


def _decision(entry: Entry) -> str | None:
    problem, plan = entry.facts.get("problem"), entry.facts.get("plan")
    if not isinstance(problem, ResidencyProblem) or not isinstance(plan, ResidencyPlan):
        return None
    changes = "<br>".join(
        escape(f"{_short(c.application)}: {c.before or '–'} → {c.after or '–'}") for c in plan.changes
    )
    asked = _short(problem.request) if problem.request else "everybody"
    outcome = f"<b class={plan.outcome}>{plan.outcome}</b>"
    cells = [
        escape(asked),
        problem.intent,
        outcome,
        f"<span class=moves>{changes}</span>",
        escape(plan.reason.replace(_DEFAULT, "")),
    ]
    return f"<tr><td class=n>{entry.at_ns / NS_PER_S:.2f} s" + "".join(f"<td>{cell}" for cell in cells)


def _short(application: str) -> str:
    return application.removeprefix(_DEFAULT)


_STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --soft: #667085; --line: #e4e7ec; --paper: #fff; --tile: #f6f7f9; --window: #e3e6ec;
  --warm: #2e7d55; --cold: #2f6fb7; --failed: #c0392b; --dropped: #6f7480; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ec; --soft: #98a2b3; --line: #2c313a; --paper: #14171c; --tile: #1c2027; --window: #2b313b;
    --warm: #57b98a; --cold: #6fb1f2; --failed: #f07a6c; --dropped: #a0a6b1; } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1100px; margin: 32px auto; padding: 0 20px; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 16px; margin: 32px 0 8px; } .sub { color: var(--soft); margin: 4px 0 12px; }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: 10px; margin-top: 16px; }
.tile { background: var(--tile); border-radius: 8px; padding: 10px 14px; }
.tile span, .tile i { display: block; color: var(--soft); font-style: normal; font-size: 12px; }
.tile b { font-size: 19px; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--soft); }
svg text.variant { fill: var(--ink); font-size: 10px; pointer-events: none; paint-order: stroke; stroke: var(--paper); stroke-width: 2px; stroke-opacity: .5; }
.grid { stroke: var(--line); } .window, .processes { fill: var(--window); }
polyline.budget { fill: none; stroke: var(--failed); stroke-dasharray: 5 3; } svg text.budget { fill: var(--failed); }
line.cold { stroke: var(--cold); } line.failed { stroke: var(--failed); } line.dropped { stroke: var(--dropped); }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: 5px 8px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; position: sticky; top: 0; background: var(--paper); }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.bar { width: 26%; } .bar div { display: flex; gap: 1px; height: 14px; margin-top: 3px; } .bar i { display: block; min-width: 1px; }
.legend span { margin-right: 16px; color: var(--soft); }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
.moves { white-space: nowrap; }
.scroll { max-height: 560px; overflow: auto; border: 1px solid var(--line); border-radius: 8px; }
b.failed { color: var(--failed); } b.cold { color: var(--cold); } b.warm { color: var(--warm); } b.dropped { color: var(--dropped); }
.wide { overflow-x: auto; }
@media (max-width: 760px) {
  body { margin: 16px auto; padding: 0 12px; }
  .tiles { grid-template-columns: repeat(2, 1fr); }
  .wide > * { min-width: 720px; } .scroll > table { min-width: 860px; } }
"""
_PAGE = """<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width, initial-scale=1"><title>{title}</title>
<style>{style}</style>
<body>
{body}
</body></html>
"""
