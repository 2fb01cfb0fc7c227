"""Run as a program: loads, runs and unloads models with the real processor and prints this process's memory after each
step.

Arguments: PLAIN.onnx and the folder of its prepared form. A process of its own, because a test run's memory is full of
other things.
"""

import asyncio
import gc
import json
import sys
from pathlib import Path

import numpy as np

from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import trim
from appliance.runtime.processors.cpu.session import OnnxProcessor
from tests.fakes.forms import prepared_form

IMAGE = {"image": np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)}


def pss_mb() -> float:
    gc.collect()
    trim()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


async def measure(plain: PreparedForm, prepared: PreparedForm) -> dict[str, list[float]]:
    """MB at rest, and for each form: loaded, asleep where it can sleep, and unloaded with the outputs still held, five
    times.
    """
    processor = OnnxProcessor("cpu", 2, 1, 1)
    warm = await processor.load(plain)  # what the runtime allocates once per process is no part of a build
    await processor.run(warm, IMAGE, None)
    await processor.unload(warm)
    del warm
    story: dict[str, list[float]] = {"rest": [pss_mb()]}
    kept = []
    for name, form in (("plain", plain), ("prepared", prepared)):
        story |= {f"{name} {state}": [] for state in ("loaded", "asleep", "unloaded")}
        for _ in range(5):
            handle = await processor.load(form)
            kept.append(await processor.run(handle, IMAGE, None))
            story[f"{name} loaded"].append(pss_mb())
            if processor.can_sleep(handle):
                await processor.sleep(handle)
                story[f"{name} asleep"].append(pss_mb())
            await processor.unload(handle)
            del handle
            story[f"{name} unloaded"].append(pss_mb())
    processor.close()
    assert len(kept) == 10
    return story


if __name__ == "__main__":
    form = prepared_form("prepared", Path(sys.argv[2]))
    print(json.dumps(asyncio.run(measure(PreparedForm("plain", sys.argv[1], 0, optimised=False), form))))
