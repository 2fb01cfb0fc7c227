"""Cold start of an evicted ResNet-50, (cold - warm) latency, against creating a session from the plain ONNX file.

Asked: at most 0.25. The budget holds one of two models, so a request for the other evicts; the plain session is created
in this process in the same round.
"""

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx

from benchmarks import _box as boxes
from benchmarks import _results as results
from tests import toys

ROUNDS, WARM = 9, 5


def main() -> None:
    """Print the table."""
    results.options(results.parser(__doc__))
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        model = toys.resnet50(Path(folder) / "resnet50.onnx")
        other = toys.conv_net(Path(folder) / "other.onnx", 60)
        budget = _import(state, model, other)
        with boxes.box(state, APPLIANCE_MEMORY__BUDGET_BYTES=str(budget)) as box, box.http() as http:
            infer, disturb = _caller(http, box, "resnet50"), _caller(http, box, "other")
            ratios = [_round(infer, disturb, model) for _ in range(ROUNDS)]
            evictions = http.get("/v1/memory").json()["evictions"]
    results.row("(cold - warm) / plain session", **results.spread(ratios), evictions=evictions, asked="≤ 0.25")


def _import(state: Path, model: Path, other: Path) -> int:
    """Import both, fp32 alone; returns a budget that the ResNet's peak fits into, but not both models."""
    with boxes.box(state) as box, box.http() as http:
        for name, path in (("resnet50", model), ("other", other)):
            boxes.await_job(box, boxes.upload(box, name, path, precisions=["fp32"]))
        profile = http.get("/v1/models/resnet50/variants").json()["items"][0]["profile"]
        return int(profile["peak_bytes"] + 2_000_000)


def _round(infer: Callable[[], float], disturb: Callable[[], float], model: Path) -> float:
    disturb()
    cold = infer()
    warm = statistics.median(infer() for _ in range(WARM))
    plain = boxes.plain_session_ms(model)
    ratio = (cold - warm) / plain
    results.row("a round", cold_ms=cold, warm_ms=warm, plain_session_ms=plain)
    return ratio


def _caller(http: httpx.Client, box: boxes.LiveBox, name: str) -> Callable[[], float]:
    infer = partial(boxes.infer, http, name, boxes.infer_body(boxes.item(box, name)))
    return partial(results.took_ms, infer)


if __name__ == "__main__":
    main()
