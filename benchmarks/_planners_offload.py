"""Offloading (ARISE): clients at the door of an empty box, zoos of variants, old results, plans one after another."""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.offload.base import Batch, OffloadInput, OffloadPolicy
from appliance.policies.offload.reactive import clipper_like, static
from benchmarks import _results as results
from tests.checkers.offload import check
from tests.instances.offload.rolling import Stay, carry_out, snapshot
from tests.instances.offload.scenes import DEPTH, LINKS, NETWORKS, RATES, SLAS, new_client, waiting_scene
from tests.instances.offload.stale_scenes import stale_scene
from tests.instances.offload.variants import (
    THREE_TIERS,
    TWO_TIERS,
    UNIFORM,
    ZOOS,
    only,
    zoo_scene,
)

SEEDS, QUICK, FIRST = 10, 3, 0
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


def _capacity(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    """One plan for an empty box with 80 clients at its door."""
    names = ("network, link, SLA", *COLUMNS, "arise", "default", "arise / paper's baselines: least", "most")
    results.head(*names, "default / arise", title="Clients served")
    cells = [(n, link, sla, SLAS[sla], (0.005, 0.007)) for n in NETWORKS for link in LINKS for sla in SLAS]
    cells += [("detection", link, "0.2 (IoU)", (0.2, 0.2), DETECTION_RATES) for link in LINKS]
    for network, link, sla, bounds, rates in cells:
        scenes = [waiting_scene(seed, network, link, bounds, rates=rates) for seed in seeds]
        found = {name: served(policy, scenes) for name, policy in policies(network, link).items()}
        paper = [found["arise"] / max(found[name], 0.1) for name in COLUMNS[:4]]
        numbers = [found[name] for name in (*COLUMNS, "arise", "earliest-due")]
        ratio = found["earliest-due"] / found["arise"]
        results.cells(f"{network} {link} {sla}", *numbers, min(paper), max(paper), ratio)


def _variants(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    """The joint choice against the same crowd on one variant, over zoos, spreads of SLAs and crowds."""
    names = ("zoo", "SLAs", "clients", "best fixed", "joint", "ratio", "worst scene", "joint, ms")
    results.head(*names, title="Joint choice of variants")
    policy = OFFLOAD_POLICIES["earliest-due"]()
    for zoo, rows in ZOOS.items():
        for title, tiers in CROWDS.items():
            for clients in (20, 40, 60):
                joint, fixed, spent = list[int](), list[int](), list[float]()
                for scene in [zoo_scene(seed, clients, tiers, rows) for seed in seeds]:
                    plan, took_ms = results.spent(partial(policy.plan, scene))
                    spent.append(took_ms)
                    assert not check(scene, plan).faults
                    joint.append(len(plan.clients))
                    alone = [only(scene, row[0]) for row in rows]
                    fixed.append(max(len(policy.plan(one).clients) for one in alone))
                worst = min(ours / best for ours, best in zip(joint, fixed, strict=True))
                ratios = (sum(joint) / sum(fixed), worst, statistics.median(spent))
                results.cells(zoo, title, clients, statistics.mean(fixed), statistics.mean(joint), *ratios)


def steady(policy: OffloadPolicy, clients: int, table: Mapping[int, float], waiting: int = 0) -> list[OffloadInput]:
    """Problems of a box that serves these clients for three seconds; those at the door are shown to the planner, but
    never let in.
    """
    random = Random(1)
    crowd = [new_client(random, i, LINKS["5G"], SLAS["mixed"], RATES) for i in range(clients)]
    door = tuple(new_client(random, 1000 + i, LINKS["5G"], SLAS["mixed"], RATES) for i in range(waiting))
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
        batches = carry_out((*under_way, *plan.batches), stays, table, now, 60.0)
    return problems[5:]


def _times(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    """Of a decision: the 20th percentile of 21 repeats, which other work hardly moves, and the median."""
    names = ("case", "asked, ms", "arise: 20 %", "arise: median", "default: 20 %", "default: median")
    results.head(*names, title="Time of a decision, ms of processor time, mean over ten plans")
    cases = [
        ("20 clients", 0.4, 20, DEPTH, 0),
        ("20 clients, 20 waiting", 2.0, 20, DEPTH, 20),
        ("200 clients, light network", 5.0, 200, LIGHT, 0),
    ]
    for title, asked, clients, table, waiting in cases:
        found: list[float] = []
        for name in TIMED:
            policy = OFFLOAD_POLICIES[name]()
            spent = [_spent_ms(policy, problem) for problem in steady(policy, clients, table, waiting)]
            found += [statistics.mean(column) for column in zip(*spent, strict=True)]
        results.cells(title, asked, *found)


def _spent_ms(policy: OffloadPolicy, problem: OffloadInput, repeats: int = 21) -> tuple[float, float]:
    spent = [results.spent(partial(policy.plan, problem))[1] for _ in range(repeats)]
    return sorted(spent)[repeats // 5], statistics.median(spent)


def _floors(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    """Scenes in which some served clients see old results, 20 for each seed: the default against every baseline."""
    count = 20 * len(seeds)
    default = OFFLOAD_POLICIES["earliest-due"]()
    spent, ours = list[float](), list[int]()
    theirs: dict[str, list[int]] = {name: [] for name in OFFLOAD_POLICIES if name != "earliest-due"}
    for seed in range(seeds[0], seeds[0] + count):
        scene = stale_scene(seed)
        plan, took_ms = results.spent(partial(default.plan, scene))
        spent.append(took_ms)
        assert not check(scene, plan).faults
        ours.append(len(plan.clients))
        for name, counts in theirs.items():
            counts.append(len(OFFLOAD_POLICIES[name]().plan(scene).clients))
    results.head(
        "baseline", "clients served in all", "scenes with more than the default", title=f"Old results, {count} scenes"
    )
    for name, counts in theirs.items():
        results.cells(name, sum(counts), sum(their > our for their, our in zip(counts, ours, strict=True)))
    results.cells("default", sum(ours), None)
    results.row("a decision of the default", P50_ms=statistics.median(spent), P95_ms=results.percentile(spent, 95))


TABLES = {
    "times": _times,
    "variants": _variants,
    "capacity": _capacity,
    "floors": _floors,
}
