"""`appliance simulate`: a whole scenario in virtual time. Offline: it needs no box."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.faults import well_written
from appliance.terminal.screen import count, milliseconds, say, share, show_table

if TYPE_CHECKING:
    from appliance.lab.scenario import Scenario


def simulate(
    scenario: Annotated[
        Path, typer.Argument(help="TOML or JSON file: the box, its models, its clients and when they ask, faults.")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="FAMILY=NAME", help="Use this policy; again for more families."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random, in place of the scenario's.")] = None,
    duration_s: Annotated[float | None, typer.Option(help="Seconds to simulate, in place of the scenario's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write one page that shows what happened.")
    ] = None,
    reference: Annotated[
        bool,
        typer.Option(
            help="Also print what a planner that knows every request beforehand reaches, with as many cold ones."
        ),
    ] = False,
) -> None:
    """Run the box in virtual time on emulated processors: an hour takes seconds.

    The engine, the memory manager and the policies are those of the running box. The same seed gives the same figures.
    A malformed scenario gives one line that names the key, and status 2.

    [dim]$[/dim] appliance simulate scenarios/small.toml
    [dim]$[/dim] appliance simulate scenarios/edge-multiai-table2.toml --policy eviction=lru --seed 3 --json
    [dim]$[/dim] appliance simulate scenarios/small.toml --reference
    """
    from appliance.lab.policies import parse_choices
    from appliance.lab.scenario import read_scenario
    from appliance.lab.simulation import simulate as run_scenario

    with well_written(scenario):
        overrides: dict[str, Any] = {"policies": parse_choices(policy or ())}
        if seed is not None:
            overrides["seed"] = seed
        if duration_s is not None:
            overrides["duration_s"] = duration_s
        read = read_scenario(scenario, overrides)
        run = run_scenario(read, keep_journal=report is not None)
        document = run.outcome.document()
        if reference:
            document["clairvoyant"] = _clairvoyant(read, document)
    if as_json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        show_figures(document, run.outcome.memory_bytes)
    if report is not None:
        from appliance.lab.report import report as page_of

        report.write_text(page_of(read, run, scenario.stem), encoding="utf-8")
        say(f"report: {report}")


def _clairvoyant(scenario: "Scenario", figures: dict[str, Any]) -> dict[str, float]:
    """The reference with as many cold requests as there were.

    Raises: Malformed for a scenario that it does not know.
    """
    from appliance.lab.clairvoyant.reference import references
    from appliance.lab.problems.base import Malformed

    try:
        (found,) = references(scenario, [1 - figures["warm"] / max(1, figures["requests"])])
    except ValueError as error:
        raise Malformed("--reference", str(error)) from None
    return asdict(found)


def show_figures(document: dict[str, Any], memory_bytes: int) -> None:
    """Figures in the format of `--json` as a table, a row per application."""
    columns = [
        "application",
        "requests>",
        "warm>",
        "cold>",
        "failed>",
        "dropped>",
        "accuracy or agreement>",
        "utility>",
        "P50 ms>",
        "P99 ms>",
    ]
    rows = [_row(name, figures) for name, figures in document["applications"].items()]
    show_table(columns, [*rows, _row("all", document)], "no applications")
    use = ", ".join(f"{name} busy {use['busy']:.1%}" for name, use in document["processors"].items())
    fullest = document.get("memory_fullest_mb")
    beside = f" beside {fullest['processes']:.1f} MB of processes" if fullest and fullest["processes"] else ""
    say(
        f"\nmodels at most {document['memory_peak_mb']:.1f} MB of {memory_bytes / 1e6:.1f} MB{beside}, "
        f"{count(document['loads'], 'load')}, {count(document['wakes'], 'wake')}, "
        f"{count(document['replacements'], 'replacement')}, {count(document['evictions'], 'eviction')}; {use}; "
        f"wait {_wait(document['wait_ms'])}; "
        f"SLO kept {share(document['slo_attainment'])}, robustness {share(document['robustness'])}"
    )
    if (sessions := document.get("sessions")) is not None:
        interval, drop = sessions["offload_interval_mean"], sessions["drop_mean"]
        tracked = "" if drop is None else f", every {interval:.1f}th frame sent, drop {drop:.4f}"
        answered = "" if sessions["in_time"] is None else f", {share(sessions['in_time'])} of frames in time"
        say(
            f"devices: {sessions['served_mean']:.1f} of {sessions['devices']} served, "
            f"{share(sessions['within_slo'])} of windows kept{tracked}{answered}"
        )
    for name, one in document.get("pipelines", {}).items():
        cost = "" if one["cost_per_frame"] is None else f", cost {one['cost_per_frame']:.4g} a frame"
        say(
            f"pipeline {name}: {share(one['finish_rate'])} of {count(one['frames'], 'frame')} in time, "
            f"P50 {milliseconds(one['latency_ms']['p50'])} ms, P99 {milliseconds(one['latency_ms']['p99'])} ms{cost}, "
            f"{count(one['plans'], 'plan')}, {one['clients']['refused']} clients refused"
        )
    if (best := document.get("clairvoyant")) is not None:
        say(
            f"a planner that knows every request: utility {best['utility_reached']:.2f} with "
            f"{best['cold_reached']:.1%} cold is reached, "
            f"more than {best['utility_most']:.2f} or less than {best['cold_least']:.1%} cold is impossible"
        )


def _wait(figures: dict[str, float | None]) -> str:
    """Before runs, failures and refusals, of all requests."""
    mean, p99 = figures["mean"], figures["p99"]
    return "–" if mean is None or p99 is None else f"{mean:,.1f} ms in the mean, {p99:,.1f} at P99"


def _row(name: str, figures: dict[str, Any]) -> list[object]:
    counts = [figures[key] for key in ("requests", "warm", "cold", "failed", "dropped")]
    quality = ["–" if figures[key] is None else f"{figures[key]:.2f}" for key in ("accuracy_mean", "utility")]
    return [
        name,
        *counts,
        *quality,
        milliseconds(figures["latency_ms"]["p50"]),
        milliseconds(figures["latency_ms"]["p99"]),
    ]
