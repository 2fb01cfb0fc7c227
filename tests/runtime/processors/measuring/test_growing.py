"""What runs take up to the largest shapes, in the measuring child with the real runtime."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from appliance.confinement.limits import ChildLimits
from appliance.domain.errors import RunFailed
from appliance.domain.hardware import Growth, MeasureCase, PreparedForm, ProcessorDescription
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.measuring import growing
from appliance.runtime.processors.measuring.measure import ChildMeasure
from tests.modelstore import networks

pytestmark = [pytest.mark.nightly("children that grow until they are ended"), pytest.mark.usefixtures("processes")]

CPU = ProcessorDescription("cpu", "cpu", 1, 1, "host", "f")


@pytest.fixture
def measure(tmp_path: Path) -> ChildMeasure:
    return ChildMeasure([CPU], ChildLimits(wall_s=120, nice=0), tmp_path)


def outer(folder: Path) -> PreparedForm:
    """x [n] → the sum over x times x, [n, n] in between."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "one"], ["column"]),
        helper.make_node("Mul", ["column", "x"], ["square"]),
        helper.make_node("ReduceSum", ["square"], ["y"], keepdims=0),
    ]
    made = networks.model(nodes, {"x": ["n"]}, {"y": []}, {"one": np.ones(1, np.int64)})
    path = networks.write(made, folder)
    return PreparedForm("b", path, Path(path).stat().st_size, optimised=False)


def lengths(*sizes: int) -> tuple[dict[str, tuple[int, ...]], ...]:
    return tuple({"x": (size,)} for size in sizes)


CASES = [MeasureCase(1, {"x": np.ones(512, np.float32)})]


@pytest.mark.anyio
async def test_memory_of_runs_is_measured_by_shape(measure: ChildMeasure, tmp_path: Path) -> None:
    """A run over n numbers takes 4 n² bytes at least; a build with nothing against it is harmless."""
    profile = await measure.profile(outer(tmp_path), "cpu", CASES, Growth(lengths(1024, 2048), needed=2))
    assert [bound.shapes["x"] for bound in profile.runs] == [(512,), (1024,), (2048,)]
    assert profile.runs[-1].peak_bytes > 0.9 * 4 * 2048**2
    assert profile.hazards == ()


@pytest.mark.anyio
async def test_growth_of_shapes_ends_before_the_machine_is_full(measure: ChildMeasure, tmp_path: Path) -> None:
    """Lengths that would take gigabytes are not tried, also where they are needed; where the tenant has stated them,
    the measurement fails.
    """
    sizes = lengths(*(2**power for power in range(10, 20)))
    growth = Growth(sizes, needed=len(sizes))
    profile = await measure.profile(outer(tmp_path), "cpu", CASES, growth)
    assert 2048 <= profile.runs[-1].shapes["x"][0] <= 2**15
    stated = Growth(sizes, needed=len(sizes), stated=len(sizes))
    with pytest.raises(RunFailed, match=r"more memory than the \d+ MB that are tried"):
        await measure.profile(outer(tmp_path), "cpu", CASES, stated)


@pytest.mark.anyio
async def test_hazard_of_a_review_stays_unless_all_shapes_are_run(measure: ChildMeasure, tmp_path: Path) -> None:
    """Few shapes: harmless. Too many: what was found by the review is a hazard."""
    form = outer(tmp_path)
    small = [MeasureCase(1, {"x": np.ones(2, np.float32)})]
    few = Growth(lengths(4, 8), unless_all_run=("it depends",), free={"x": (0,)})
    assert (await measure.profile(form, "cpu", small, few)).hazards == ()
    many = Growth(lengths(4, 8), unless_all_run=("it depends",), free=None)
    assert (await measure.profile(form, "cpu", small, many)).hazards == ("it depends",)


def test_unneeded_shapes_are_tried_only_within_a_time_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time for them, only the needed shapes are run."""
    monkeypatch.setattr(growing, "STEPS_MS", 0.0)
    monkeypatch.setattr(growing, "STEPS_SHARE", 0.0)
    sessions, form = OnnxSessions(1), outer(tmp_path)
    order = asdict(Growth(lengths(1024, 2048, 4096), needed=1))
    grown = growing.Grower(sessions, form, sessions.load(form), CASES[0].inputs, order, str(tmp_path)).grow()
    assert [bound.shapes["x"] for bound in grown.runs] == [(512,), (1024,)]
