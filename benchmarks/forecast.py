"""Forecasters: error by pattern, which of them a box chooses, and processor time of a prediction and of training.

Errors are means over `--seeds` histories of `--arrivals` each: |predicted - actual| of the last third, in shares of the
mean gap there, after learning from the first two thirds. Memory: the same in MB on series of one sample a second,
horizon three seconds. Times are of this machine, best of 20 rounds.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from statistics import fmean

from appliance.policies.forecast import FORECASTERS, MEMORY_FORECASTERS
from appliance.policies.forecast.choice import choose
from appliance.policies.forecast.companions import Companions
from appliance.policies.forecast.memory_choice import choose_memory
from appliance.policies.forecast.residuals import Residuals
from benchmarks import _results as results
from tests.policies.forecast.arrivals import PATTERNS, poisson
from tests.policies.forecast.curves import SECOND, falling, sawtooth, steady


def errors(seeds: range, count: int) -> None:
    results.head("pattern", *FORECASTERS, f"chosen of {len(seeds)}", title=f"Error in mean gaps, {count} arrivals")
    for name, pattern in PATTERNS.items():
        found, chosen = [], Counter[str]()
        for seed in seeds:
            history = pattern(Random(seed), count)
            choice = choose(history, seed, FORECASTERS)
            gap_ns = (history[-1] - history[-choice.held_out - 1]) / choice.held_out
            found.append({name: error / gap_ns for name, error in choice.errors_ns.items()})
            chosen[choice.forecaster.name] += 1
        means = [fmean(one[key] for one in found) if key in found[0] else None for key in FORECASTERS]
        results.cells(name, *means, _counted(chosen))


def memory_errors(seeds: range) -> None:
    results.head("series", *MEMORY_FORECASTERS, "chosen", title="Available memory, error in MB")
    for series in (falling, sawtooth, steady):
        choices = [choose_memory(series(Random(seed), 240), 3 * SECOND, seed, MEMORY_FORECASTERS) for seed in seeds]
        means = [fmean(c.errors_bytes[name] for c in choices) / 1e6 for name in MEMORY_FORECASTERS]
        results.cells(series.__name__, *means, _counted(Counter(c.forecaster.name for c in choices)))


def times() -> None:
    history, memory = poisson(Random(0), 600), sawtooth(Random(0), 500)
    latest, now_ns = history[-64:], history[-1] + 1
    results.head("what", "µs", title="Times")
    for name, kind in FORECASTERS.items():
        forecaster = kind.fit(history, 0)
        assert forecaster is not None
        _row(f"predict, {name}", lambda f=forecaster: f.predict(latest, now_ns), 300)  # type: ignore[misc]
    for name, memory_kind in MEMORY_FORECASTERS.items():
        predictor = memory_kind.fit(memory, 3 * SECOND, 0)
        assert predictor is not None
        _row(f"predict memory, {name}", partial(predictor.predict, memory[-64:], 3 * SECOND), 300)
    residuals, companions = Residuals(1), Companions()
    _row("residual added", lambda: residuals.add("a", 5, 9), 300)
    _row("Δ", residuals.delta_ns, 300)
    _row("window observed", lambda: companions.observe("a", {"b", "c"}), 300)
    _row("P(r | active)", lambda: companions.beside("a")["b"], 300)
    _row("train, rnn, the most rows", lambda: FORECASTERS["rnn"].fit(history, 0), 1, rounds=5)
    _row("choose, 200 arrivals", lambda: choose(history[:200], 0, FORECASTERS), 1, rounds=5)
    _row("train memory, the most rows", lambda: MEMORY_FORECASTERS["rnn"].fit(memory, 3 * SECOND, 0), 1, rounds=5)


def _row(what: str, call: Callable[[], object], calls: int, rounds: int = 20) -> None:
    spent = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            call()
        spent.append((time.process_time() - start) / calls)
    results.cells(what, min(spent) * 1e6)


def _counted(chosen: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in chosen.most_common())


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--arrivals", type=int, default=240)
    options = results.options(parser)
    errors(range(options.seeds), options.arrivals)
    memory_errors(range(options.seeds))
    times()


if __name__ == "__main__":
    main()
