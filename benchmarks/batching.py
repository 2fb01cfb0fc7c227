"""Batching against none, per network of the demo zoo: requests/s where all ask at once, P99 at part load, overload.

Asked: `meaning` at least 1.25 times the requests/s; every network's P99 at 10, 50 and 90 % of the load without batches
at most 1.03, 1.1 and 1.0 times theirs; in time at 150 % no fewer. By requests of `/v2` with one item each, as a
device of the zoo sends it (of `meaning` sixteen tokens), from a process of its own on the same processors.

Three boxes with the same imports take short turns: with batches, without, and without once more, which says how much
two equal boxes differ. In each round all three get the same arrivals, in another order of boxes. Percentiles are those
of all rounds together, and the range of a ratio is that of 5 to 95 % of 1,000 draws of as many rounds (bootstrap).
"""

import argparse
import math
import random
import shutil
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from appliance.demo.zoo.entries import ZooModel
from benchmarks import _box, _inputs, _zoo
from benchmarks import _results as results
from benchmarks._open_load import offer
from tests.e2e.load import drive

TOKENS = {name: np.ones((1, 16), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
LOADS = {0.1: 0.4, 0.5: 0.2, 0.9: 0.25, 1.5: 0.15}
"""Of what the box without batches serves at most → share of the time. Few requests come at a low load."""
POLICIES = {"on": "by-profile", "off": "none", "again": "none"}
"""Of the boxes."""
MOST_S = 0.7
"""What the box without batches serves at most is found anew in each round, for neighbours come and go."""
DEADLINE_MS = 500.0
DRAWS = 1000


@dataclass(frozen=True)
class Subject:
    """A box that is asked: `path` of the variant's statistics, and a whole request."""

    box: _box.LiveBox
    path: str
    request: bytes

    def counts(self) -> tuple[int, int]:
        """Items and runs so far."""
        with self.box.http() as http:
            (row,) = http.get(f"/v2/models/{self.path}/stats").json()["model_stats"]
        return row["inference_count"], row["execution_count"]


@dataclass(frozen=True)
class Turn:
    """What became of the requests of a turn: how long each took, ms; infinite where the answer was none."""

    times_ms: list[float]

    @property
    def in_time(self) -> int:
        return sum(took_ms <= DEADLINE_MS for took_ms in self.times_ms)


def main() -> None:
    """Print the table."""
    parser = results.parser(__doc__)
    parser.add_argument("--models", nargs="+", default=["meaning", "read-text", "page-side"])
    parser.add_argument("--variants", nargs="+", default=["fp32"], help="of each, where they share runs")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--loads", action="store_true", help="also open-loop arrivals at part load and overload")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=5.0, help="of measuring, for all variants together")
    parser.add_argument("--keep", type=Path, help="folder for the imported models, used again by the next run")
    options = results.options(parser)
    with _zoo.kept(options.keep) as state, ExitStack() as stack:
        zoo = _zoo.imported(state, "demo", tuple(options.models))
        live = {name: stack.enter_context(_without(state, name, policy)) for name, policy in POLICIES.items()}
        found = [one for model in zoo.models for one in _sharing(model, live["on"], options.variants)]
        for path, inputs in found:
            asked = {name: Subject(box, path, _box.infer_request(path, box.key, inputs)) for name, box in live.items()}
            _compare(asked, options, 60 * options.minutes / len(found))


def _without(state: Path, name: str, policy: str) -> Any:
    """A box on a copy of what was imported."""
    own = state.with_name(f"state-{name}")
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(state, own)
    return _box.box(own, APPLIANCE_POLICIES__BATCHING=policy)


def _sharing(model: ZooModel, box: _box.LiveBox, wanted: Sequence[str]) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Paths of a network's variants that may share runs, each with the inputs of an item."""
    name = model.name
    inputs = TOKENS if name == "meaning" else _inputs.sent(model, 1)[0]
    with box.http() as http:
        variants = {v["name"]: v for v in http.get(f"/v1/models/{name}/variants").json()["items"]}
        order = http.get(f"/v1/applications/{name}").json()["variants"]
    found = []
    for variant in order:
        profile = variants[variant]["profile"]
        rows = {f"batch_{row['batch']}_ms": row["p50_ms"] for row in profile["latencies"]}
        results.row(f"{name} {variant}", rows_that_may_share_a_run=profile["shared_rows_max"], **rows)
        if profile["shared_rows_max"] > 1 and variant in wanted:
            found.append((f"{name}/versions/{variant}", inputs))
    return found


def _compare(asked: dict[str, Subject], options: argparse.Namespace, seconds: float) -> None:
    """Print what came of a variant within about so many seconds."""
    turn_s = seconds / options.rounds / len(asked) / (5 if options.loads else 1)
    for one in asked.values():
        drive(one.box.port, [one.request], 2, 1.0)
    before = asked["on"].counts()
    rates: dict[str, list[float]] = {name: [] for name in asked}
    for round_ in range(options.rounds):
        for name in _order(asked, round_):
            one = asked[name]
            driven = drive(one.box.port, [one.request], options.connections, turn_s)
            rates[name].append(driven["count"] / driven["seconds"])
    results.row(
        f"{asked['on'].path}, {options.connections} connections: with batches / without",
        **results.spread([one / other for one, other in zip(rates["on"], rates["off"], strict=True)]),
        per_s=statistics.median(rates["on"]),
        without_per_s=statistics.median(rates["off"]),
        two_without=statistics.median(a / b for a, b in zip(rates["again"], rates["off"], strict=True)),
        items_a_run=_shared(asked["on"], before),
        asked="≥ 1.25 (`meaning`)",
    )
    if options.loads:
        for load, share in LOADS.items():
            _at_load(asked, load, options, 0.8 * seconds * share / options.rounds / len(asked))


def _at_load(asked: dict[str, Subject], load: float, options: argparse.Namespace, seconds: float) -> None:
    """Print what came of a share of what is served at most, in turns of so many seconds."""
    before = asked["on"].counts()
    turns: dict[str, list[Turn]] = {name: [] for name in asked}
    rates = []
    for round_ in range(options.rounds):
        alone = asked["off"]
        most = drive(alone.box.port, [alone.request], options.connections, MOST_S)
        rates.append(load * most["count"] / most["seconds"])
        for name in _order(asked, round_):
            turns[name].append(_offer(asked[name], rates[-1], seconds, seed=round_))
    on, off, again = (turns[name] for name in POLICIES)
    results.row(
        f"{asked['on'].path} at {load:.0%} of the most, with / without",
        offered_per_s=statistics.median(rates),
        requests=sum(len(turn.times_ms) for turn in on),
        P50_ms=_percentile(on, 50),
        P50_without_ms=_percentile(off, 50),
        P99_ms=_percentile(on, 99),
        P99_without_ms=_percentile(off, 99),
        P99_ratio=_tails(on, off),
        P99_ratio_two_without=_tails(again, off),
        in_time_ratio=_in_time(on) / max(1, _in_time(off)),
        in_time_ratio_two_without=_in_time(again) / max(1, _in_time(off)),
        items_a_run=_shared(asked["on"], before),
    )


def _order(asked: dict[str, Subject], round_: int) -> list[str]:
    """Of the boxes: each is first, second and last equally often."""
    names = list(asked)
    at = round_ % len(names)
    return names[at:] + names[:at]


def _shared(one: Subject, before: tuple[int, int]) -> float:
    items, runs = (now - then for now, then in zip(one.counts(), before, strict=True))
    return items / max(1, runs)


def _tails(ours: Sequence[Turn], theirs: Sequence[Turn]) -> str:
    """The ratio of their P99s, and how far other rounds like these might have it."""
    chance = random.Random(1)
    rounds = range(len(ours))
    drawn = []
    for _ in range(DRAWS):
        some = [chance.choice(rounds) for _ in rounds]
        drawn.append(_tail([ours[at] for at in some], [theirs[at] for at in some]))
    drawn.sort()
    return f"{_tail(ours, theirs):.2f} ({drawn[DRAWS // 20]:.2f}-{drawn[-DRAWS // 20]:.2f})"


def _tail(ours: Sequence[Turn], theirs: Sequence[Turn]) -> float:
    own, other = _percentile(ours, 99), _percentile(theirs, 99)
    return 1.0 if own == other else own / other  # both infinite: neither answers


def _percentile(turns: Sequence[Turn], percent: int) -> float:
    return results.percentile([took_ms for turn in turns for took_ms in turn.times_ms], percent)


def _in_time(turns: Sequence[Turn]) -> int:
    return sum(turn.in_time for turn in turns)


def _offer(one: Subject, rate: float, seconds: float, seed: int) -> Turn:
    result = offer(one.box.port, one.request, rate, seconds, DEADLINE_MS, connections=500, seed=seed, keep_times=True)
    served: list[float] = result["served_ms"]
    return Turn(served + [math.inf] * (result["offered"] - len(served)))


if __name__ == "__main__":
    main()
