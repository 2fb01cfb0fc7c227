"""Guards that tests attack, and builds that add in them."""

import os
import select
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from appliance.clock import SystemClock
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from tests import toys

MIB = 2**20


def form_of(path: Path, tenant: str, name: str = "") -> PreparedForm:
    return PreparedForm(name or path.stem, str(path), path.stat().st_size, optimised=False, guarded_for=tenant)


def adding(folder: Path, tenant: str, name: str = "add") -> PreparedForm:
    """A build that adds two inputs."""
    return form_of(toys.tiny_add(folder / f"{name}.onnx"), tenant, name)


def numbers(value: float) -> dict[str, np.ndarray]:
    return {"A": np.full((1, 4), value, np.float32), "B": np.ones((1, 4), np.float32)}


async def adds(processor: GuardedProcessor, build: Any, value: float = 1.0) -> bool:
    """Whether a build of `adding` is run, and rightly."""
    return bool((await processor.run(build, numbers(value), None))["SUM"].tolist() == [[value + 1.0] * 4])


@contextmanager
def guarding(folder: Path, **options: Any) -> Iterator[GuardedProcessor]:
    """A processor with one worker."""
    made = GuardOptions(scratch=folder / "scratch", **options)
    with closing(GuardedProcessor(OnnxProcessor("p", 1, 1, 1), SystemClock(), made)) as processor:
        yield processor


def wait_for_end(process: int) -> None:
    """Block until a process has ended, and close its descriptor."""
    select.select([process], [], [])
    os.close(process)
