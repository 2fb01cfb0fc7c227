"""A guarded processor."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from appliance.clock import SystemClock
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from tests.attacks.guards import MIB


@pytest.fixture
def run_s_max() -> float:
    """Longer than any honest run takes on a busy machine; tests of the limit have another."""
    return 60.0


@pytest.fixture
def processor(tmp_path: Path, run_s_max: float) -> Iterator[GuardedProcessor]:
    inner = OnnxProcessor("p", workers=2, threads_per_run=1, loads_parallel_max=1)
    options = GuardOptions(scratch=tmp_path / "scratch", run_s_max=run_s_max, run_bytes_max=512 * MIB)
    with closing(GuardedProcessor(inner, SystemClock(), options)) as made:
        yield made
