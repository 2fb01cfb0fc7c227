"""Every kind of processor in the registry, in the service and in a guard."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from appliance.clock import SystemClock
from appliance.runtime.processors import PROCESSORS
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions

KINDS = [kind for kind in sorted(PROCESSORS) if kind == "cpu" or find_spec(kind) is not None]
"""Those whose libraries are here."""


@pytest.fixture(params=[f"{kind}{home}" for kind in KINDS for home in ("", " in a guard")])
def home(request: pytest.FixtureRequest) -> str:
    """The kind, and where the builds live."""
    return str(request.param)


@pytest.fixture
def processor(home: str, tmp_path: Path) -> Iterator[Any]:
    made = PROCESSORS[home.split(maxsplit=1)[0]](name="p", workers=2, threads_per_run=1, loads_parallel_max=1)
    if "guard" in home:
        made = GuardedProcessor(made, SystemClock(), GuardOptions(scratch=tmp_path / "scratch"))
    yield made
    made.close()
