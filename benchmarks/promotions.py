"""Time until a box promotes or dismisses a variant without samples.

Asked: at one distinct request a second and runs of at most 25 ms a variant that deserves it is promoted within five
minutes. How often the rules of a trial judge right: `tests/domain/test_trial.py`.
"""

import json
import tempfile
import time
from pathlib import Path

from appliance.demo.zoo import toys
from benchmarks import _box as boxes
from benchmarks import _results as results
from tests.api.hand_written_networks import sensor_counts, sensor_level


def main() -> None:
    """Print when a box that is asked every so often judges the variants of two networks, of which one bears int8."""
    parser = results.parser(__doc__)
    parser.add_argument("--every-s", type=float, default=1.0, help="time between two requests")
    parser.add_argument("--seconds", type=float, default=420.0, help="how long a box is asked at most")
    chosen = results.options(parser)
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
        while (spent := time.perf_counter() - start) < chosen.seconds and not all(
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
            time.sleep(max(0.0, start + number * chosen.every_s - time.perf_counter()))
    for variant_name, word in seen.items():
        results.row(f"at the end: {variant_name}", verdict=word)


if __name__ == "__main__":
    main()
