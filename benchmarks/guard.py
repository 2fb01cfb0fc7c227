"""What a guard costs against a run in the service: added time, throughput and memory.

Asked: added P50 at most 0.1 ms for a tiny model and 0.4 ms for a network with 600 kB of input; throughput at least
0.95 of that in the service; at most 25 MB each. The homes take turns, so that all see the same machine; a turn is
several runs long, for a home whose turn came with every third run would find its memory gone from the caches, which is
not the price of a guard. `pooled` takes the same 600 kB and computes next to nothing: what is added there is the way
alone.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from appliance.clock import SystemClock
from appliance.demo.zoo import graphs
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from benchmarks import _results as results
from tests import toys
from tests.fakes.forms import prepared_form

WORKERS, ROUNDS = 2, 15
RUNS = {"tiny": 300, "pooled": 200, "picture": 20}
WARM_UP = 2
RUN_S_MAX = 1.0


def main() -> None:
    """Print the figures."""
    results.options(results.parser(__doc__))
    uvloop.run(_main())


async def _main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inner = OnnxProcessor("cpu", WORKERS, 1, 1)
        processor = GuardedProcessor(
            inner, SystemClock(), GuardOptions(scratch=folder / "scratch", run_s_max=RUN_S_MAX)
        )
        picture = np.random.default_rng(1).random((1, 3, 224, 224), np.float32)
        tiny = {"A": np.ones((1, 4), np.float32), "B": np.ones((1, 4), np.float32)}
        for label, source, inputs in (
            ("tiny", toys.tiny_add(folder / "add.onnx"), tiny),
            ("pooled", _pooled(folder / "pooled.onnx"), {"X": picture}),
            ("picture", toys.squeezenet(folder / "squeezenet.onnx"), {}),
        ):
            form = prepared(inner, source, folder / label)
            inside = await processor.load(form)
            guarded: Any = await processor.load(replace(form, guarded_for=label))
            feeds = inputs or {inside.session.get_inputs()[0].name: picture}  # type: ignore[union-attr]
            await _added(processor, label, inside, guarded, feeds)
            await _throughput(processor, label, inside, guarded, feeds)
            results.row(f"{label}: a guard without models", MB=guarded.guard.base_bytes / 1e6, asked="≤ 25")
        processor.close()


async def _added(processor: GuardedProcessor, label: str, inside: Any, guarded: Any, inputs: Any) -> None:
    async def inline() -> None:
        processor.run_inline(inside, inputs, None)

    async def thread() -> None:
        await processor.run(inside, inputs, None)

    async def guard() -> None:
        await processor.run(guarded, inputs, None)

    rows = [[await _median_ms(home, RUNS[label]) for home in (inline, thread, guard)] for _ in range(ROUNDS)]
    inline_ms, hop_ms, guard_ms = (statistics.median(column) for column in zip(*rows, strict=True))
    results.row(f"{label}: a run", inline_ms=inline_ms, thread_ms=hop_ms, guard_ms=guard_ms)
    added = results.spread([row[2] - row[0] for row in rows])
    results.row(f"{label}: added, ms", **added, asked={"tiny": "≤ 0.1", "pooled": "≤ 0.4"}.get(label, ""))


async def _median_ms(home: Callable[[], Awaitable[None]], runs: int) -> float:
    times = []
    for _ in range(WARM_UP + runs):
        start = time.perf_counter()
        await home()
        times.append(time.perf_counter() - start)
    return statistics.median(times[WARM_UP:]) * 1e3


async def _throughput(processor: GuardedProcessor, label: str, inside: Any, guarded: Any, inputs: Any) -> None:
    ratios = []
    for _ in range(ROUNDS):
        rates = [await _rate(processor, handle, inputs, RUNS[label]) for handle in (inside, guarded)]
        ratios.append(rates[1] / rates[0])
    results.row(f"{label}: throughput, guarded / in the service", **results.spread(ratios), asked="≥ 0.95")


async def _rate(processor: GuardedProcessor, handle: Any, inputs: Any, runs: int) -> float:
    async def work() -> None:
        for _ in range(runs):
            await processor.run(handle, inputs, None)

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(WORKERS)))
    return WORKERS * runs / (time.perf_counter() - start)


def prepared(inner: OnnxProcessor, source: Path, folder: Path) -> PreparedForm:
    """A network as the processor wants it."""
    folder.mkdir()
    assert inner.sessions.prepare(source, folder)
    return prepared_form(source.stem, folder)


def _pooled(path: Path) -> Path:
    """A mean over each channel."""
    net = graphs.Graph()
    net.add("GlobalAveragePool", ["X"], "Y")
    return graphs.save(net.model("pooled", {"X": (1, 3, 224, 224)}, {"Y": (1, 3, 1, 1)}), path)


if __name__ == "__main__":
    main()
