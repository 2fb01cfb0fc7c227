"""Offloading (ARISE): clients served against every baseline, the joint choice of variants, decision times, and plans that follow one another.

Every plan is re-checked frame by frame. Times are CPU time of the decision, the median of repeats. Asked: 20 clients ≤ 0.4 ms, with 20 waiting ≤ 2 ms,
200 clients ≤ 5 ms; the default ≥ 1.1 × plain ARISE in mixed cells, never fewer elsewhere; joint ≥ 1.2 × the best fixed variant. `--quick`: fewer seeds.
"""

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.offload.base import Batch, OffloadInput, OffloadPolicy
from appliance.policies.offload.reactive import clipper_like, static
from tests.checkers.offload import check
from tests.instances.offload.rolling import Stay, carry_out, play, snapshot
from tests.instances.offload.scenes import DEPTH, LINKS, NETWORKS, SLAS, new_client, waiting_scene
from tests.instances.offload.variants import TWO_TIERS, UNIFORM, only, zoo_scene

LIGHT: Mapping[int, float] = {n: 1.0 + 0.35 * n for n in (1, 2, 4, 8, 16, 32)}
"""A network quick enough for 200 clients."""
DETECTION_RATES = (0.025, 0.035)
"""IoU a frame: at the paper's SLA of 0.2, intervals around 13."""
PAPER_STATIC = {
    ("depth", "5G"): (3, 5),
    ("depth", "LTE"): (3, 3),
    ("detection", "5G"): (5, 5),
    ("detection", "LTE"): (5, 5),
}
PAPER_CLIPPER = {"depth": 3, "detection": 9}
COLUMNS = ("static", "clipper-like", "chameleon-like", "arise-alpha", "static-searched", "clipper-like-searched")


def policies(network: str, link: str) -> dict[str, OffloadPolicy]:
    """All, the fixed baselines in the paper's setting for this cell."""
    made = {name: make() for name, make in OFFLOAD_POLICIES.items()}
    made["static"] = static(*PAPER_STATIC[network, link])
    made["clipper-like"] = clipper_like(PAPER_CLIPPER[network])
    return made


def served(policy: OffloadPolicy, scenes: Sequence[OffloadInput]) -> float:
    """Mean number of clients served."""
    total = 0
    for scene in scenes:
        plan = policy.plan(scene)
        faults = check(scene, plan).faults
        assert not faults, faults
        total += len(plan.clients)
    return total / len(scenes)


def capacity(seeds: int) -> None:
    """One plan for an empty box with 80 clients at its door."""
    print("## Clients served\n")
    print(
        f"| network, link, SLA | {' | '.join(COLUMNS)} | arise | default | arise / paper's baselines | default / arise |"
    )
    print("|" + " --- |" * (len(COLUMNS) + 5))
    cells = [(n, link, sla, SLAS[sla], (0.005, 0.007)) for n in NETWORKS for link in LINKS for sla in SLAS]
    cells += [("detection", link, "0.2 (IoU)", (0.2, 0.2), DETECTION_RATES) for link in LINKS]
    for network, link, sla, bounds, rates in cells:
        scenes = [waiting_scene(seed, network, link, bounds, rates=rates) for seed in range(seeds)]
        found = {name: served(policy, scenes) for name, policy in policies(network, link).items()}
        paper = [found["arise"] / max(found[name], 0.1) for name in COLUMNS[:4]]
        numbers = " | ".join(f"{found[name]:.1f}" for name in (*COLUMNS, "arise", "earliest-due"))
        ratio = found["earliest-due"] / found["arise"]
        print(f"| {network} {link} {sla} | {numbers} | {min(paper):.1f}-{max(paper):.1f} | {ratio:.2f} |", flush=True)


def variants(seeds: int) -> None:
    """The joint choice against the same crowd on one variant."""
    print(
        "\n## Joint choice of variants\n\n| SLAs | clients | best fixed | joint | ratio |\n| --- | --- | --- | --- | --- |"
    )
    policy = OFFLOAD_POLICIES["earliest-due"]()
    for title, tiers, clients in (("0.02 and 0.06", TWO_TIERS, 40), ("uniform 0.02-0.06", UNIFORM, 40)):
        joint = fixed = 0
        for seed in range(seeds):
            scene = zoo_scene(seed, clients, tiers)
            plan = policy.plan(scene)
            assert not check(scene, plan).faults
            joint += len(plan.clients)
            fixed += max(len(policy.plan(only(scene, name)).clients) for name in ("large", "medium", "small"))
        print(f"| {title} | {clients} | {fixed / seeds:.1f} | {joint / seeds:.1f} | {joint / fixed:.2f} |")


def following(seeds: int) -> None:
    """Twelve seconds of coming and going."""
    print("\n## Plans that follow one another (every 200 ms, 10 at the door)\n")
    print(
        "| cell | policy | served | removed / admitted | clients whose whole stay passed the SLA | worst drop / SLA |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for network, link, sla in (
        ("depth", "5G", "0.02"),
        ("depth", "5G", "mixed"),
        ("depth", "LTE", "mixed"),
        ("detection", "5G", "mixed"),
    ):
        for name in ("arise-alpha", "arise", "earliest-due"):
            runs = [
                play(OFFLOAD_POLICIES[name](), seed, network, link, sla, 12.0) for seed in range(max(1, seeds // 2))
            ]
            drops = [drop / slo for run in runs for drop, slo in run.drops]
            moves = f"{sum(r.removals for r in runs)} / {sum(r.admissions for r in runs)}"
            mean = statistics.mean(run.served_mean for run in runs)
            over = sum(drop > 1.0 for drop in drops)
            print(
                f"| {network} {link} {sla} | {name} | {mean:.1f} | {moves} | {over} of {len(drops)} | {max(drops):.2f} |",
                flush=True,
            )


def steady(policy: OffloadPolicy, clients: int, table: Mapping[int, float], waiting: int = 0) -> list[OffloadInput]:
    """Problems of a box that serves these clients for three seconds; those at the door are shown to the planner, but never let in."""
    random = Random(1)
    crowd = [new_client(random, i, LINKS["5G"], SLAS["mixed"]) for i in range(clients)]
    door = tuple(new_client(random, 1000 + i, LINKS["5G"], SLAS["mixed"]) for i in range(waiting))
    stays = {c.name: Stay(c, 1e18) for c in crowd}
    batches: tuple[Batch, ...] = ()
    problems = []
    for step in range(15):
        now = step * 200.0
        running = [b for b in batches if b.start_ms < now]
        busy = max((b.start_ms + table[len(b.requests)] for b in running), default=0.0)
        known = tuple(snapshot(stay, now) for stay in stays.values())
        problem = OffloadInput(60.0, now, 1000.0, table, known, (), busy, previous=batches)
        problems.append(replace(problem, waiting=door))
        plan = policy.plan(problem)
        under_way = [b for b in running if b.start_ms + table[len(b.requests)] > now]
        batches = carry_out((*under_way, *plan.batches), stays, table, now)
    return problems[5:]


def times() -> None:
    """Median CPU milliseconds of a decision."""
    print("\n## Time of a decision, ms CPU (mean over plans of the median of repeats)\n")
    print("| case | asked | arise | default |\n| --- | --- | --- | --- |")
    cases = [
        ("20 clients", 0.4, 20, DEPTH, 0),
        ("20 clients, 20 waiting", 2.0, 20, DEPTH, 20),
        ("200 clients, light network", 5.0, 200, LIGHT, 0),
    ]
    cases += [(f"{n} clients, light network", 0.0, n, LIGHT, 0) for n in (50, 100)]
    for title, asked, clients, table, waiting in cases:
        row = [
            statistics.mean(_median_ms(p, x) for x in steady(p, clients, table, waiting))
            for p in (OFFLOAD_POLICIES["arise"](), OFFLOAD_POLICIES["earliest-due"]())
        ]
        print(f"| {title} | {asked or ''} | {row[0]:.2f} | {row[1]:.2f} |", flush=True)


def _median_ms(policy: OffloadPolicy, problem: OffloadInput) -> float:
    spent = []
    for _ in range(11):
        start = time.process_time_ns()
        policy.plan(problem)
        spent.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(spent)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer seeds")
    seeds = 3 if parser.parse_args().quick else 10
    times()
    variants(seeds)
    capacity(seeds)
    following(seeds)


if __name__ == "__main__":
    main()
