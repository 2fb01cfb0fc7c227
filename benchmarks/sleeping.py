"""Sleeping builds, in the service and in a guard: memory asleep, the time to sleep and to wake with the file in the
page cache and not, and the processor time of a cold start.

Asked of ResNet-50: at most 1.5 MB asleep (2 in a guard); (cold − warm) / plain session at most 0.04 (0.06) with the
pages in the page cache; a wake from the disk at most 1.2 times as long as reading the file; at most 6 ms of processor
time per 100 MB for a cold start, the sleep of another one included. Cold is a wake and the run after it; the plain
session is made of the uploaded file in this process. All are done in turns, round by round. Of the processor time the
runs are left out: what the run after a wake takes more is lost in what runs differ by.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from appliance.clock import SystemClock
from appliance.demo.zoo import toys
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import trim
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from benchmarks import _box as boxes
from tests.fakes.forms import prepared_form

NETWORKS = {"resnet50": toys.resnet50, "shufflenet": toys.shufflenet}
TRIMMED_AFTER_S = 12.0
"""By then a processor's heap is trimmed, whatever went before."""
WARM = 3
BLOCK_BYTES = 1 << 20


@dataclass
class Figures:
    """Of one network in one home; milliseconds, one entry a round."""

    sleep: list[float] = field(default_factory=list)
    wake: list[float] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)
    wake_disk: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    added: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="scripts/bench sleeping", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    asyncio.run(_main(parser.parse_args().rounds))


async def _main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inner = OnnxProcessor("cpu", 1, 1, 1)
        processor = GuardedProcessor(inner, SystemClock(), GuardOptions(scratch=folder / "scratch"))
        for network, make in NETWORKS.items():
            source = make(folder / f"{network}.onnx")
            form = _prepared(inner, source, folder / network)
            for home, owner in (("service", None), ("guard", "harbour")):
                await _network(processor, network, home, replace(form, guarded_for=owner), source, rounds)
        processor.close()


def _prepared(inner: OnnxProcessor, source: Path, folder: Path) -> PreparedForm:
    folder.mkdir()
    assert inner.sessions.prepare(source, folder)
    form = prepared_form(source.stem, folder)
    return form


async def _network(
    processor: GuardedProcessor, network: str, home: str, form: PreparedForm, source: Path, rounds: int
) -> None:
    inputs = {"gpu_0/data_0": np.random.default_rng(1).random((1, 3, 224, 224), np.float32)}
    weights = max(Path(form.path).parent.iterdir(), key=lambda file: file.stat().st_size)
    first: Any = await processor.load(form)
    await processor.run(first, inputs, None)
    pid = first.guard.pid if hasattr(first, "guard") else os.getpid()
    await processor.unload(first)
    del first
    base = await _pss(pid)
    handle: Any = await processor.load(form)
    await processor.run(handle, inputs, None)
    awake = await _pss(pid)
    await processor.sleep(handle)
    asleep = await _pss(pid)
    figures = Figures()
    for _ in range(rounds):
        await _round(processor, handle, inputs, pid, figures)
        await _from_disk(processor, handle, inputs, weights, figures)
        figures.plain.append(boxes.plain_session_ms(source))
    await processor.unload(handle)
    _report(f"{network}, {home}", (awake - base) / 1e6, (asleep - base) / 1e6, weights.stat().st_size / 1e6, figures)


async def _round(processor: GuardedProcessor, handle: Any, inputs: Any, pid: int, figures: Figures) -> None:
    """From asleep to asleep, with the pages in the page cache."""
    figures.expected.append(processor.wake_ns(handle) / 1e6)
    start_ms = _processor_ms(pid)
    figures.wake.append(await _ms(processor.wake(handle)))
    woke_ms = _processor_ms(pid) - start_ms
    first_ms = await _ms(processor.run(handle, inputs, None))
    warm = [await _ms(processor.run(handle, inputs, None)) for _ in range(WARM)]
    start_ms = _processor_ms(pid)
    figures.sleep.append(await _ms(processor.sleep(handle)))
    figures.processor.append(woke_ms + _processor_ms(pid) - start_ms)
    figures.added.append(figures.wake[-1] + first_ms - statistics.median(warm))


async def _from_disk(processor: GuardedProcessor, handle: Any, inputs: Any, weights: Path, figures: Figures) -> None:
    """The same with the pages on disk, beside reading them."""
    _leave_cache(weights)
    start = time.perf_counter()
    _read(weights)
    figures.read.append((time.perf_counter() - start) * 1e3)
    _leave_cache(weights)
    figures.wake_disk.append(await _ms(processor.wake(handle)))
    await processor.run(handle, inputs, None)
    await processor.sleep(handle)


async def _ms(call: Awaitable[Any]) -> float:
    start = time.perf_counter()
    await call
    return (time.perf_counter() - start) * 1e3


def _processor_ms(pid: int) -> float:
    """Processor time of this process and of the one in which the build lives."""
    own = time.process_time() * 1e3
    if pid == os.getpid():
        return own
    # In nanoseconds; the ticks of `stat` are 10 ms.
    spent = [int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return own + sum(spent) / 1e6


async def _pss(pid: int) -> int:
    """Bytes in memory once the heap is trimmed."""
    clock = SystemClock()
    await clock.sleep_until_ns(clock.now_ns() + int(TRIMMED_AFTER_S * 1e9))
    if pid == os.getpid():
        trim()
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()  # noqa: ASYNC240 - a benchmark
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _leave_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(path: Path) -> None:
    block = bytearray(BLOCK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass


def _report(label: str, awake_mb: float, asleep_mb: float, file_mb: float, figures: Figures) -> None:
    ratios = [added / plain for added, plain in zip(figures.added, figures.plain, strict=True)]
    from_disk = [wake / read for wake, read in zip(figures.wake_disk, figures.read, strict=True)]
    per_100_mb = [spent / file_mb * 100 for spent in figures.processor]
    print(f"{label} ({file_mb:.0f} MB on disk)")
    print(f"  memory           {awake_mb:.1f} MB awake, {asleep_mb:.2f} asleep")
    for name, values, unit in (
        ("to sleep", figures.sleep, "ms"),
        ("to wake", figures.wake, "ms"),
        ("  expected", figures.expected, "ms"),
        ("from the disk", figures.wake_disk, "ms"),
        ("  / reading it", from_disk, "×"),
        ("cold − warm", figures.added, "ms"),
        ("plain session", figures.plain, "ms"),
        ("  their ratio", ratios, ""),
        ("processor time", figures.processor, "ms a cold start"),
        ("  per 100 MB", per_100_mb, "ms"),
    ):
        print(f"  {name:<16} {statistics.median(values):.3g} {unit} (from {min(values):.3g} to {max(values):.3g})")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
