"""Run as a program: loads, runs and unloads models with the real processor and prints this process's memory after each
step.

Arguments: PLAIN.onnx and the folder of its prepared form. A process of its own, because a test run's memory is full of
other things.
"""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np

from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxProcessor
from tests.fakes.forms import prepared_form
from tests.fakes.own_memory import own_bytes

IMAGE = {"image": np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)}


async def measure(plain: PreparedForm, prepared: PreparedForm) -> dict[str, list[float]]:
    """MB at rest, and for each form: loaded, asleep where it can sleep, and unloaded with the outputs still held, five
    times. Libraries are not counted, which other processes may map, too: they stay, and are no part of a build.
    """

    def own_mb() -> float:
        return own_bytes(Path(plain.path).parent, Path(prepared.path).parent) / 2**20

    processor = OnnxProcessor("cpu", 2, 1, 1)
    warm = await processor.load(plain)  # what the runtime allocates once per process is no part of a build
    await processor.run(warm, IMAGE, None)
    await processor.unload(warm)
    del warm
    story: dict[str, list[float]] = {"rest": [own_mb()]}
    kept = []
    for name, form in (("plain", plain), ("prepared", prepared)):
        story |= {f"{name} {state}": [] for state in ("loaded", "asleep", "unloaded")}
        for _ in range(5):
            handle = await processor.load(form)
            kept.append(await processor.run(handle, IMAGE, None))
            story[f"{name} loaded"].append(own_mb())
            if processor.can_sleep(handle):
                await processor.sleep(handle)
                story[f"{name} asleep"].append(own_mb())
            await processor.unload(handle)
            del handle
            story[f"{name} unloaded"].append(own_mb())
    processor.close()
    assert len(kept) == 10
    return story


if __name__ == "__main__":
    form = prepared_form("prepared", Path(sys.argv[2]))
    print(json.dumps(asyncio.run(measure(PreparedForm("plain", sys.argv[1], 0, optimised=False), form))))
