"""Every kind of processor in the registry keeps the port's contract, on a real model, in the service and in a guard."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.domain.errors import LoadFailed, RunRefused
from appliance.domain.hardware import PreparedForm
from appliance.domain.padding import Fill
from appliance.tasks.padding import Padded
from tests import toys
from tests.contracts.conftest import HOMES
from tests.modelstore import networks


@pytest.fixture
def tenant(home: str) -> str | None:
    return "harbour" if "guard" in home else None


@pytest.fixture
def form(tmp_path: Path, as_form: Callable[[Path], PreparedForm]) -> PreparedForm:
    return as_form(toys.tiny_add(tmp_path / "add.onnx"))


def numbers(value: float) -> dict[str, np.ndarray]:
    return {"A": np.full((1, 4), value, np.float32), "B": np.ones((1, 4), np.float32)}


@pytest.mark.anyio
async def test_processor_description_is_constant(processor: Any) -> None:
    """Name and numbers as asked for, the same every time."""
    described = processor.describe()
    assert (described.name, described.workers, described.threads_per_run) == ("p", 2, 1)
    assert described.fingerprint
    assert described.memory_domain
    assert processor.describe() == described


@pytest.mark.anyio
@pytest.mark.parametrize("outputs", [None, ["SUM"]])
async def test_processor_runs_compute_the_requested_outputs(
    processor: Any, form: PreparedForm, outputs: list[str] | None, tenant: str | None
) -> None:
    """All outputs or the named outputs, several runs at once or on the calling thread, each with its own numbers."""
    handle = await processor.load(form)
    results = await asyncio.gather(*(processor.run(handle, numbers(i), outputs) for i in range(4)))
    if not tenant:
        results += [processor.run_inline(handle, numbers(i), outputs) for i in range(4, 8)]
    assert [r["SUM"].tolist() for r in results] == [[[i + 1.0] * 4] for i in range(len(results))]
    await processor.unload(handle)
    assert results[3]["SUM"].tolist() == [[4.0] * 4]  # they belong to the caller


@pytest.mark.anyio
async def test_processor_loads_of_one_form_are_independent(processor: Any, form: PreparedForm) -> None:
    """Unloading one leaves the other; the same build may be loaded again."""
    one, other = await processor.load(form), await processor.load(form)
    await processor.unload(one)
    assert (await processor.run(other, numbers(1), None))["SUM"].tolist() == [[2.0] * 4]
    await processor.unload(other)
    again = await processor.load(form)
    assert (await processor.run(again, numbers(2), None))["SUM"].tolist() == [[3.0] * 4]


class PaddedElsewhere(Padded):
    """Complains where the thread of the event loop pads it."""

    def __getitem__(self, name: str) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        return super().__getitem__(name)


@pytest.mark.anyio
@pytest.mark.parametrize("home", HOMES, indirect=True)  # fakes compute nothing
async def test_processor_pads_inputs_off_the_event_loop(
    processor: Any, tmp_path: Path, as_form: Callable[[Path], PreparedForm]
) -> None:
    """An input by itself, and several of different sizes in one run, of which each gets its own rows."""
    handle = await processor.load(as_form(Path(networks.write(networks.relu(("n", "w")), tmp_path))))
    rows = [np.arange(3, dtype=np.float32)[None], np.full((2, 2), 7, np.float32), np.full((1, 4), 9, np.float32)]
    inputs = [PaddedElsewhere({"x": each}, {"x": (4, 4)}, Fill.EDGE) for each in rows]
    outputs = await processor.run_rows(handle, inputs, [1, 2, 1], ["y"])
    assert [each["y"].tolist() for each in outputs] == [[[0, 1, 2, 2]], [[7] * 4] * 2, [[9] * 4]]
    alone = await processor.run(handle, inputs[0], None)
    assert alone["y"].tolist() == [[0, 1, 2, 2]]
    sent = [{"x": np.full((count, 3), count, np.float32)} for count in (1, 2)]
    outputs = await processor.run_rows(handle, sent, [1, 2], None)
    assert [each["y"].tolist() for each in outputs] == [[[1] * 3], [[2] * 3] * 2]
    await processor.unload(handle)


@pytest.mark.anyio
async def test_processor_reports_failed_load_and_refused_run_and_goes_on(
    processor: Any, form: PreparedForm, tmp_path: Path
) -> None:
    """A broken form is LoadFailed, an input of a wrong shape is RunRefused."""
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"garbage")
    with pytest.raises(LoadFailed):
        await processor.load(replace(form, build_id="garbage", path=str(garbage)))
    handle = await processor.load(form)
    with pytest.raises(RunRefused):
        await processor.run(handle, {"A": np.ones((1, 3), np.float32)}, None)
    assert (await processor.run(handle, numbers(1), None))["SUM"].shape == (1, 4)
