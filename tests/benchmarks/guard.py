"""What a guard costs: the time that it adds to a run on the event loop, throughput with all workers, its own memory.

Asked: added P50 at most 0.1 ms for a tiny model and 0.4 ms for a network with 600 kB of input; throughput at least 0.95
of that in the service; at most 25 MB each. The two homes take turns, so that both see the same machine.
"""

import asyncio
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from appliance.clock import SystemClock
from appliance.demo.zoo import toys
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxProcessor, prepared_form
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions

WORKERS, ROUNDS = 2, 9
RUNS = {"tiny": 300, "picture": 10}


def main() -> None:
    """Print the figures."""
    uvloop.run(_main())


async def _main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inner = OnnxProcessor("cpu", WORKERS, 1, 1)
        processor = GuardedProcessor(inner, SystemClock(), GuardOptions(scratch=folder / "scratch"))
        picture = {"x": np.random.default_rng(1).random((1, 3, 224, 224), np.float32)}
        tiny = {"A": np.ones((1, 4), np.float32), "B": np.ones((1, 4), np.float32)}
        for label, source, inputs in (
            ("tiny", toys.tiny_add(folder / "add.onnx"), tiny),
            ("picture", toys.squeezenet(folder / "squeezenet.onnx"), picture),
        ):
            form = _prepared(inner, source, folder / label)
            inside = await processor.load(form)
            guarded: Any = await processor.load(replace(form, guarded_for=label))
            feeds = inputs if label == "tiny" else {inside.session.get_inputs()[0].name: picture["x"]}  # type: ignore[union-attr]
            await _added(processor, label, inside, guarded, feeds)
            await _throughput(processor, label, inside, guarded, feeds)
            print(f"{label:8} base {guarded.guard.base_bytes / 1e6:.1f} MB (asked ≤ 25)")
        processor.close()


async def _added(processor: GuardedProcessor, label: str, inside: Any, guarded: Any, inputs: Any) -> None:
    rows = []
    for _ in range(ROUNDS):
        inline, hop, guard = [], [], []
        for _ in range(RUNS[label]):
            start = time.perf_counter()
            processor.run_inline(inside, inputs, None)
            inline.append(time.perf_counter() - start)
            start = time.perf_counter()
            await processor.run(inside, inputs, None)
            hop.append(time.perf_counter() - start)
            start = time.perf_counter()
            await processor.run(guarded, inputs, None)
            guard.append(time.perf_counter() - start)
        rows.append([statistics.median(times) * 1e3 for times in (inline, hop, guard)])
    inline_ms, hop_ms, guard_ms = (statistics.median(column) for column in zip(*rows, strict=True))
    added = statistics.median(guard - inline for inline, _, guard in rows)
    print(f"{label:8} inline {inline_ms:.3f} ms  thread {hop_ms:.3f} ms  guard {guard_ms:.3f} ms  added {added:.3f} ms")


async def _throughput(processor: GuardedProcessor, label: str, inside: Any, guarded: Any, inputs: Any) -> None:
    ratios = []
    for _ in range(ROUNDS):
        rates = [await _rate(processor, handle, inputs, RUNS[label]) for handle in (inside, guarded)]
        ratios.append(rates[1] / rates[0])
    print(f"{label:8} throughput guarded / in the service {statistics.median(ratios):.3f}")


async def _rate(processor: GuardedProcessor, handle: Any, inputs: Any, runs: int) -> float:
    async def work() -> None:
        for _ in range(runs):
            await processor.run(handle, inputs, None)

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(WORKERS)))
    return WORKERS * runs / (time.perf_counter() - start)


def _prepared(inner: OnnxProcessor, source: Path, folder: Path) -> PreparedForm:
    folder.mkdir()
    inner.sessions.prepare(source, folder)
    return prepared_form(source.stem, folder) or PreparedForm(source.stem, str(source), 1000, optimised=False)


if __name__ == "__main__":
    main()
