"""`appliance replay`: the arrivals of a scenario, sent to a real box in real time."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.connection import Connection, connected
from appliance.cli.faults import well_written
from appliance.cli.simulate import show_figures
from appliance.terminal.screen import milliseconds, say, share, show_table

if TYPE_CHECKING:
    from appliance.cli.replaying import Replayed
    from appliance.lab.scenario import Scenario


@connected
def replay(
    box: Connection,
    scenario: Annotated[Path, typer.Argument(help="TOML or JSON file; its applications must be on the box.")],
    seed: Annotated[int | None, typer.Option(help="Seed of everything random, in place of the scenario's.")] = None,
    duration_s: Annotated[float | None, typer.Option(help="Seconds to replay, in place of the scenario's.")] = None,
) -> None:
    """Send a scenario's requests to a real box, at their times, and print the figures of `appliance simulate` for it.

    Inputs are made of the models' metadata; stateful models get theirs in sequences. Latencies are those inside the
    box, as in a simulation; the caller's are printed beside them. Requests that failed are counted by their problem,
    each with an example. What the scenario says of policies, memory and faults is not done to the box.

    [dim]$[/dim] appliance scenario -o box.toml
    [dim]$[/dim] appliance simulate box.toml --json
    [dim]$[/dim] appliance replay box.toml --json
    """
    from appliance.lab.scenario import read_scenario

    overrides: dict[str, Any] = {} if seed is None else {"seed": seed}
    if duration_s is not None:
        overrides["duration_s"] = duration_s
    with well_written(scenario):
        read = read_scenario(scenario, overrides)
        for what in left_out(read):
            say(f"left out: {what}, for a scenario has no pictures")
        replayed = replayed_on(box, read)
    document = document_of(replayed)
    if box.as_json:
        print(json.dumps(document, ensure_ascii=False))
        return
    show_figures(document, replayed.outcome.memory_bytes)
    if replayed.failures:
        print()
        rows = [(f.count, f.application, f.problem, f.status or "–", f.example) for f in replayed.failures]
        show_table(("failed>", "application", "why", "status>", "for example"), rows, "")
    seen = document["client_latency_ms"]
    say(
        f"as the caller saw it: P50 {milliseconds(seen['p50'])} ms, P99 {milliseconds(seen['p99'])} ms, "
        f"{share(document['throughput_rps'])} answers/s; sent at most {milliseconds(document['behind_ms_max'])} ms late"
    )


def replayed_on(box: Connection, scenario: "Scenario") -> "Replayed":
    """Replay a scenario on a box.

    Raises: CommandFailed, Malformed (of a trace file), httpx.TransportError when nobody answers.
    """
    import httpx

    from appliance.cli.replaying import CONNECTIONS_MAX, Replay
    from appliance.client.trust import trusted
    from appliance.clock import SystemClock
    from appliance.lab.workload import draw

    arrivals = draw(scenario.arrivals, scenario.seed, scenario.duration_s, scenario.base_dir)

    is_public = box.ca is None and box.fingerprint is None
    verified = True if is_public else trusted(box.ca, url=box.url, fingerprint=box.fingerprint)

    async def run() -> "Replayed":
        async with httpx.AsyncClient(
            base_url=box.url,
            headers={"Authorization": f"Bearer {box.key}"} if box.key else {},
            timeout=httpx.Timeout(60.0, connect=5.0),
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
            verify=verified,
            trust_env=False,
        ) as http:
            return await Replay(scenario, SystemClock(), http).run(arrivals)

    return asyncio.run(run())


def left_out(scenario: "Scenario") -> list[str]:
    """What of a scenario is not sent, for a person."""
    of = {"pipelines": [one.name for one in scenario.pipelines], "devices": [one.name for one in scenario.sessions]}
    return [f"{what} ({', '.join(names)})" for what, names in of.items() if names]


def document_of(replayed: "Replayed") -> dict[str, Any]:
    """The keys of `appliance simulate --json`, and what only a real box has."""
    from appliance.clock import NS_PER_MS, NS_PER_S

    document: dict[str, Any] = replayed.outcome.document()
    seen = sorted(replayed.client_ns)
    ranks = {name: max(0, -(-percent * len(seen) // 100) - 1) for name, percent in (("p50", 50), ("p99", 99))}
    return document | {
        "client_latency_ms": {name: seen[rank] / NS_PER_MS if seen else None for name, rank in ranks.items()},
        "throughput_rps": round(len(seen) * NS_PER_S / max(1, replayed.elapsed_ns), 6),
        "behind_ms_max": max(replayed.behind_ns, default=0) / NS_PER_MS,
        "elapsed_s": replayed.elapsed_ns / NS_PER_S,
        "failures": [asdict(failures) for failures in replayed.failures],
    }
