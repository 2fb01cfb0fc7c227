"""Offloading (ARISE): clients served against every baseline, the joint choice of variants, decision times, and plans
that follow one another.

Every plan is re-checked frame by frame. Times are CPU time of the decision. Asked: 20 clients ≤ 0.4 ms, with 20 waiting
≤ 2 ms, 200 clients ≤ 5 ms; the default ≥ 1.1 × plain ARISE in mixed cells, never fewer than a baseline; joint ≥ 1.2 ×
the best fixed variant. `--quick`: fewer seeds.
"""

import argparse
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random

from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.offload.base import Batch, OffloadInput, OffloadPolicy
from appliance.policies.offload.due import pace
from appliance.policies.offload.fleet import fleet_of
from appliance.policies.offload.reactive import clipper_like, static
from tests.checkers.offload import check
from tests.instances.offload.rolling import Stay, carry_out, play, snapshot
from tests.instances.offload.scenes import DEPTH, LINKS, NETWORKS, RATES, SLAS, new_client, waiting_scene
from tests.instances.offload.stale_scenes import stale_scene
from tests.instances.offload.variants import (
    THREE_TIERS,
    TWO_TIERS,
    UNIFORM,
    ZOOS,
    changing_scenes,
    only,
    zoo_scene,
)

CROWDS = {"0.02, 0.04, 0.06": THREE_TIERS, "0.02, 0.06": TWO_TIERS, "uniform 0.02-0.06": UNIFORM}
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
TIMED = ("arise", "earliest-due")
FRAME_RATES = (30.0, 60.0, 90.0)
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


def capacity(seeds: Sequence[int]) -> None:
    """One plan for an empty box with 80 clients at its door."""
    print("\n## Clients served\n")
    print(
        f"| network, link, SLA | {' | '.join(COLUMNS)} | arise | default | arise / paper's baselines | default / "
        f"arise |"
    )
    print("|" + " --- |" * (len(COLUMNS) + 5))
    cells = [(n, link, sla, SLAS[sla], (0.005, 0.007)) for n in NETWORKS for link in LINKS for sla in SLAS]
    cells += [("detection", link, "0.2 (IoU)", (0.2, 0.2), DETECTION_RATES) for link in LINKS]
    for network, link, sla, bounds, rates in cells:
        scenes = [waiting_scene(seed, network, link, bounds, rates=rates) for seed in seeds]
        found = {name: served(policy, scenes) for name, policy in policies(network, link).items()}
        paper = [found["arise"] / max(found[name], 0.1) for name in COLUMNS[:4]]
        numbers = " | ".join(f"{found[name]:.1f}" for name in (*COLUMNS, "arise", "earliest-due"))
        ratio = found["earliest-due"] / found["arise"]
        print(f"| {network} {link} {sla} | {numbers} | {min(paper):.1f}-{max(paper):.1f} | {ratio:.2f} |", flush=True)


def variants(seeds: Sequence[int]) -> None:
    """The joint choice against the same crowd on one variant, over zoos, spreads of SLAs and crowds."""
    print("\n## Joint choice of variants\n")
    print("| zoo | SLAs | clients | best fixed | joint | ratio | worst scene | in closed form | joint, ms |")
    print("|" + " --- |" * 9)
    for zoo in ZOOS:
        for title, tiers in CROWDS.items():
            for clients in (20, 40, 60):
                scenes = [zoo_scene(seed, clients, tiers, ZOOS[zoo]) for seed in seeds]
                print(
                    f"| {zoo} | {title} | {clients} | {_joint_row(scenes, [row[0] for row in ZOOS[zoo]])} |", flush=True
                )


def _joint_row(scenes: Sequence[OffloadInput], names: Sequence[str]) -> str:
    """Best fixed, joint, their ratio, the lowest of a scene, the ratio of the closed forms, CPU ms of a joint
    decision.
    """
    policy = OFFLOAD_POLICIES["earliest-due"]()
    joint, fixed = [], []
    bound = bound_fixed = 0.0
    spent = []
    for scene in scenes:
        start = time.process_time_ns()
        plan = policy.plan(scene)
        spent.append((time.process_time_ns() - start) / 1e6)
        assert not check(scene, plan).faults
        joint.append(len(plan.clients))
        fixed.append(max(len(policy.plan(only(scene, name)).clients) for name in names))
        loads = {name: pace(fleet_of(only(scene, name))).load for name in names}
        bound += _within(map(min, zip(*loads.values(), strict=True)))
        bound_fixed += max(_within(load) for load in loads.values())
    worst = min(ours / best for ours, best in zip(joint, fixed, strict=True))
    ratios = f"{sum(joint) / sum(fixed):.2f} | {worst:.2f} | {bound / bound_fixed:.2f}"
    return f"{statistics.mean(fixed):.1f} | {statistics.mean(joint):.1f} | {ratios} | {statistics.median(spent):.0f}"


def _within(loads: Iterable[float], capacity: float = 0.9) -> int:
    """How many clients, the cheapest first, load the processor by no more than plans usually carry."""
    return sum(total <= capacity for total in accumulate(sorted(loads)))


def door(seeds: Sequence[int]) -> None:
    """Sixty at the door, planned anew at five instants between which every link changes, against fresh results."""
    print("\n## Sixty at the door, links that change, against fresh results\n")
    print(
        "| zoo | best fixed | most accurate | joint | / best fixed | worst instant | / most accurate | ms | at most |"
    )
    print("|" + " --- |" * 9)
    policy = OFFLOAD_POLICIES["earliest-due"]()
    for zoo, rows in ZOOS.items():
        joint, fixed, accurate, spent = [], [], [], []
        for scene in [scene for seed in seeds for scene in changing_scenes(seed, 60, rows)]:
            start = time.process_time_ns()
            plan = policy.plan(scene)
            spent.append((time.process_time_ns() - start) / 1e6)
            assert not check(scene, plan).faults
            joint.append(len(plan.clients))
            each = [len(policy.plan(only(scene, row[0])).clients) for row in rows]
            fixed.append(max(each))
            accurate.append(each[0])
        worst = min(ours / max(1, best) for ours, best in zip(joint, fixed, strict=True))
        ratios = f"{sum(joint) / sum(fixed):.2f} | {worst:.2f} | {sum(joint) / max(1, sum(accurate)):.2f}"
        means = " | ".join(f"{statistics.mean(found):.1f}" for found in (fixed, accurate, joint))
        print(f"| {zoo} | {means} | {ratios} | {statistics.median(spent):.0f} | {max(spent):.0f} |", flush=True)


def following(seeds: Sequence[int]) -> None:
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
            runs = [play(OFFLOAD_POLICIES[name](), seed, network, link, sla, 12.0) for seed in _fewer(seeds)]
            drops = [drop / slo for run in runs for drop, slo in run.drops]
            moves = f"{sum(r.removals for r in runs)} / {sum(r.admissions for r in runs)}"
            mean = statistics.mean(run.served_mean for run in runs)
            over = sum(drop > 1.0 for drop in drops)
            print(
                f"| {network} {link} {sla} | {name} | {mean:.1f} | {moves} | {over} of {len(drops)} | "
                f"{max(drops):.2f} |",
                flush=True,
            )


def steady(
    policy: OffloadPolicy, clients: int, table: Mapping[int, float], waiting: int = 0, fps: float = 60.0
) -> list[OffloadInput]:
    """Problems of a box that serves these clients for three seconds; those at the door are shown to the planner, but
    never let in. A scene drops as
    much in a second whatever the frame rate."""
    random = Random(1)
    rates = _rates_at(fps)
    crowd = [new_client(random, i, LINKS["5G"], SLAS["mixed"], rates) for i in range(clients)]
    door = tuple(new_client(random, 1000 + i, LINKS["5G"], SLAS["mixed"], rates) for i in range(waiting))
    stays = {c.name: Stay(c, 1e18) for c in crowd}
    batches: tuple[Batch, ...] = ()
    problems = []
    for step in range(15):
        now = step * 200.0
        running = [b for b in batches if b.start_ms < now]
        busy = max((b.start_ms + table[len(b.requests)] for b in running), default=0.0)
        known = tuple(snapshot(stay, now) for stay in stays.values())
        problem = OffloadInput(fps, now, 1000.0, table, known, (), busy, previous=batches)
        problems.append(replace(problem, waiting=door))
        plan = policy.plan(problem)
        under_way = [b for b in running if b.start_ms + table[len(b.requests)] > now]
        batches = carry_out((*under_way, *plan.batches), stays, table, now, fps)
    return problems[5:]


def _rates_at(fps: float) -> tuple[float, float]:
    return RATES[0] * 60.0 / fps, RATES[1] * 60.0 / fps


def times(seeds: Sequence[int]) -> None:
    """CPU milliseconds of a decision."""
    print("\n## Time of a decision, ms CPU: 20th percentile / median of 21 repeats, mean over ten plans\n")
    print("| case | asked | arise | default |\n| --- | --- | --- | --- |")
    cases = [
        ("20 clients", "0.4", 20, DEPTH, 0),
        ("20 clients, 20 waiting", "2", 20, DEPTH, 20),
        ("200 clients, light network", "5", 200, LIGHT, 0),
    ]
    for title, asked, clients, table, waiting in cases:
        row = [_steady_ms(name, clients, table, waiting) for name in TIMED]
        print(f"| {title} | {asked} | {row[0]} | {row[1]} |", flush=True)


def _steady_ms(name: str, clients: int, table: Mapping[int, float], waiting: int = 0, fps: float = 60.0) -> str:
    policy = OFFLOAD_POLICIES[name]()
    spent = [_spent_ms(policy, problem) for problem in steady(policy, clients, table, waiting, fps)]
    low, middle = (statistics.mean(column) for column in zip(*spent, strict=True))
    return f"{low:.2f} / {middle:.2f}"


def _spent_ms(policy: OffloadPolicy, problem: OffloadInput, repeats: int = 21) -> tuple[float, float]:
    """20th percentile, which other work on the machine hardly moves, and median."""
    spent = []
    for _ in range(repeats):
        start = time.process_time_ns()
        policy.plan(problem)
        spent.append((time.process_time_ns() - start) / 1e6)
    return sorted(spent)[repeats // 5], statistics.median(spent)


def growth(seeds: Sequence[int]) -> None:
    """How times and clients served grow with clients, with those at the door, and with the frame rate."""
    print("\n## Growth, steady: light network, 5G, mixed, ms CPU (20th percentile / median)\n")
    print("| fps | clients | arise | default |\n| --- | --- | --- | --- |")
    for fps in FRAME_RATES:
        for clients in (10, 20, 50, 100, 200):
            row = [_steady_ms(name, clients, LIGHT, fps=fps) for name in TIMED]
            print(f"| {fps:.0f} | {clients} | {row[0]} | {row[1]} |", flush=True)
    print("\n## Growth, empty box: depth, 5G, mixed; clients served, ms CPU (median)\n")
    print("| fps | at the door | arise | default | ratio | arise, ms | default, ms |\n" + "|" + " --- |" * 7)
    for fps in FRAME_RATES:
        for clients in (10, 20, 40, 80, 160):
            scenes = [waiting_scene(s, "depth", "5G", "mixed", clients, _rates_at(fps), fps) for s in _fewer(seeds)]
            policies = [OFFLOAD_POLICIES[name]() for name in TIMED]
            plain, ours = (served(policy, scenes) for policy in policies)
            spent = [statistics.mean(_spent_ms(policy, x, 5)[1] for x in scenes) for policy in policies]
            counts = f"{plain:.1f} | {ours:.1f} | {ours / plain:.2f}"
            print(f"| {fps:.0f} | {clients} | {counts} | {spent[0]:.1f} | {spent[1]:.1f} |", flush=True)


def floors(seeds: Sequence[int], scenes: int = 200) -> None:
    """Scenes in which some served clients see old results: the default against every baseline.

    Asked: never fewer clients.
    """
    print(f"\n## Old results: {scenes} scenes from seed {seeds[0]}\n")
    names = [name for name in OFFLOAD_POLICIES if name != "earliest-due"]
    default = OFFLOAD_POLICIES["earliest-due"]()
    spent, ours = [], []
    theirs: dict[str, list[int]] = {name: [] for name in names}
    for seed in range(seeds[0], seeds[0] + scenes):
        scene = stale_scene(seed)
        start = time.process_time_ns()
        plan = default.plan(scene)
        spent.append((time.process_time_ns() - start) / 1e6)
        assert not check(scene, plan).faults
        ours.append(len(plan.clients))
        for name in names:
            theirs[name].append(len(OFFLOAD_POLICIES[name]().plan(scene).clients))
    print("| baseline | clients served in all | scenes in which it serves more than the default |\n| --- | --- | --- |")
    for name in names:
        more = sum(their > our for their, our in zip(theirs[name], ours, strict=True))
        print(f"| {name} | {sum(theirs[name])} | {more} |")
    print(f"| default | {sum(ours)} | |")
    slow = sorted(spent)[int(0.95 * len(spent))]
    print(f"\nA decision of the default: median {statistics.median(spent):.1f} ms CPU, 95th percentile {slow:.0f} ms")


def _fewer(seeds: Sequence[int]) -> Sequence[int]:
    return seeds[: max(3, len(seeds) // 2)]


TABLES = {
    "times": times,
    "growth": growth,
    "variants": variants,
    "door": door,
    "capacity": capacity,
    "following": following,
    "floors": floors,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three seeds")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--table", choices=TABLES, action="append", help="only this one, or these")
    options = parser.parse_args()
    seeds = range(options.first, options.first + (3 if options.quick else options.seeds))
    for name in options.table or TABLES:
        TABLES[name](seeds)


if __name__ == "__main__":
    main()
