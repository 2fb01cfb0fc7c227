"""Every kind of processor in the registry, in the service and in a guard; what this machine has not, by a fake."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.clock import SystemClock
from appliance.domain.hardware import PreparedForm
from appliance.runtime import processors
from appliance.runtime.processors import PROCESSORS
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from tests.fakes import accelerators

KINDS = ["cpu", "openvino"]
"""Those that every machine of a developer has."""
FAKED = [kind for kind in PROCESSORS if kind not in ("cpu", "openvino", "emulated")]
"""Those whose devices are not: their libraries are faked. (What is emulated runs networks that say what runs take.)"""
HOMES = [f"{kind}{home}" for kind in KINDS for home in ("", " in a guard")]


@pytest.fixture(params=[*HOMES, *(f"{kind} by a fake" for kind in FAKED)])
def home(request: pytest.FixtureRequest, processes: None) -> str:
    """The kind, and where the builds live."""
    return str(request.param)


@pytest.fixture
def processor(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if "fake" in home:
        accelerators.install(monkeypatch)
    made = PROCESSORS[home.split(maxsplit=1)[0]](name="p", workers=2, threads_per_run=1, loads_parallel_max=1)
    if "guard" in home:
        made = GuardedProcessor(made, SystemClock(), GuardOptions(scratch=tmp_path / "scratch"))
    yield made
    made.close()


@pytest.fixture
def as_form(home: str, tmp_path: Path, processor: Any) -> Callable[[Path], PreparedForm]:
    """A network as the kind loads it: prepared where it has to be compiled first."""

    def form(path: Path) -> PreparedForm:
        kind = home.split(maxsplit=1)[0]
        guarded_for = "harbour" if "guard" in home else None
        if kind not in FAKED:
            size = path.stat().st_size
            return PreparedForm(path.stem, str(path), size, optimised=False, kind=kind, guarded_for=guarded_for)
        folder = tmp_path / f"{path.stem}-{kind}"
        folder.mkdir()
        name = processors.KINDS[kind].sessions(2, 1).prepare(path, folder)
        assert name is not None
        return PreparedForm(path.stem, str(folder / name), path.stat().st_size, optimised=True, kind=kind)

    return form
