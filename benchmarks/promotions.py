"""Time until a box promotes or dismisses a variant without samples, and how often the rules of its trial judge right.

Asked: at one distinct request a second and runs of at most 25 ms a variant that deserves it is promoted within five
minutes, and of variants that are off by 5 % at least 99 of 100 are dismissed.
"""

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from appliance.demo.zoo import toys
from appliance.domain.trial import Trial, TrialRules, Verdict
from benchmarks import _box as boxes
from benchmarks import _results as results
from tests.api.hand_written_networks import sensor_counts, sensor_level

TRIALS = 2_000
SAMPLES_MAX = 100_000
RULES = TrialRules()


def main() -> None:
    """Print how often the rules judge right, then the course of two variants on a box."""
    parser = results.parser(__doc__)
    parser.add_argument("--every-s", type=float, default=1.0, help="time between two requests")
    parser.add_argument("--seconds", type=float, default=420.0, help="how long a box is asked at most")
    parser.add_argument("--only", choices=["rules", "box"])
    chosen = results.options(parser)
    if chosen.only != "box":
        results.say(f"{TRIALS} trials each, rules: {RULES}")
        for words, draw in CASES.items():
            judged(words, draw)
    if chosen.only != "rules":
        asked(chosen.every_s, chosen.seconds)


CASES: dict[str, Callable[[random.Random], float]] = {
    "the same answers": lambda dice: 1.0,
    "1 % of the answers differ": lambda dice: float(dice.random() >= 0.01),
    "0.5 % of the answers differ": lambda dice: float(dice.random() >= 0.005),
    "5 % of the answers differ": lambda dice: float(dice.random() >= 0.05),
    "all answers are off by 5 %": lambda dice: 0.95,
    "answers are off by 3 to 7 %": lambda dice: dice.uniform(0.93, 0.97),
    "10 % of the answers differ": lambda dice: float(dice.random() >= 0.1),
}
"""Words for how a variant does → the agreement of its next answer."""


def judged(words: str, draw: Callable[[random.Random], float]) -> None:
    """Print the verdicts of many trials of one sort, and after how many requests they fell."""
    dice = random.Random(17)
    verdicts: Counter[Verdict] = Counter()
    lengths = []
    for _ in range(TRIALS):
        trial = Trial()
        while trial.verdict is Verdict.RUNNING and trial.samples < SAMPLES_MAX:
            trial = trial.after(draw(dice), RULES)
        verdicts[trial.verdict] += 1
        lengths.append(trial.samples)
    shares = {f"{verdict}_percent": 100 * count / TRIALS for verdict, count in verdicts.most_common()}
    length = {f"requests_P{percent}": results.percentile(lengths, percent) for percent in (50, 95)}
    results.row(words, **shares, **length)


def asked(every_s: float, seconds: float) -> None:
    """Print when a box that is asked every so often judges the variants of two networks, of which one bears int8."""
    with tempfile.TemporaryDirectory() as folder, boxes.box() as box, box.http() as http, box.client() as client:
        digits = toys.digits(Path(folder))
        level = sensor_level(Path(folder) / "level.onnx")
        stated = json.loads(digits.metadata.read_text())
        for job in (boxes.upload(box, "digits", digits.model, **stated), boxes.upload(box, "level", level)):
            boxes.await_job(box, job)
        pictures = sorted(digits.evaluation.glob("*.png"))
        start = time.perf_counter()
        seen: dict[str, str] = {}
        number = 0
        while (spent := time.perf_counter() - start) < seconds and not all(
            word.startswith(("promoted", "dismissed")) for word in seen.values() or [""]
        ):
            client.predict("digits", pictures[number % len(pictures)])
            boxes.infer(http, "level", boxes.infer_body({"X": sensor_counts(number)}))
            number += 1
            for name in ("digits", "level"):
                for variant in http.get(f"/v1/models/{name}").json()["variants"]:
                    trial = variant["trial"]
                    if variant["name"] != "fp32" and variant["state"] == "ready" and trial:
                        word = f"{trial['verdict']} after {trial['samples']} requests, {trial['agreement']:.4f}"
                        if seen.get(f"{name}/{variant['name']}", "").split()[:1] != word.split()[:1]:
                            results.row(f"{name}/{variant['name']}", after_s=round(spent), verdict=word)
                        seen[f"{name}/{variant['name']}"] = word
            time.sleep(max(0.0, start + number * every_s - time.perf_counter()))
    for variant_name, word in seen.items():
        results.row(f"at the end: {variant_name}", verdict=word)


if __name__ == "__main__":
    main()
