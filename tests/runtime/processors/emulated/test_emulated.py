"""A processor that is not there: it computes, takes the time that the network says, and answers say so."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from appliance.clock import NS_PER_MS, SystemClock
from appliance.domain.errors import LoadFailed, RunStopped
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.emulated.session import Emulated, EmulatedProcessor, times_of
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from appliance.tasks.base import TokenOrder
from tests.toys import tiny_add

pytestmark = pytest.mark.anyio


def form(folder: Path, times: str | None) -> PreparedForm:
    model = onnx.load(tiny_add(folder / "add.onnx"))
    helper.set_model_props(model, {} if times is None else {"emulated_ms": times})
    onnx.save(model, folder / "add.onnx")
    return PreparedForm("add@emulated", str(folder / "add.onnx"), 1000, optimised=False)


def numbers(rows: int) -> dict[str, np.ndarray]:
    return {"A": np.full((rows, 4), 2.0, np.float32), "B": np.ones((rows, 4), np.float32)}


async def test_emulated_run_takes_the_time_that_the_network_states(tmp_path: Path) -> None:
    """By the number of items, on as many workers as the processor has; answers are right, and a run can be stopped."""
    clock = SystemClock()
    processor = EmulatedProcessor("e", workers=2, threads_per_run=1, loads_parallel_max=1)
    handle = await processor.load(form(tmp_path, json.dumps({"1": 40, "4": 100})))
    start_ns = clock.now_ns()
    results = await asyncio.gather(*(processor.run(handle, numbers(rows), None) for rows in (1, 3)))
    assert clock.now_ns() - start_ns >= 100 * NS_PER_MS
    assert [result["SUM"].shape for result in results] == [(1, 4), (3, 4)]
    assert results[0]["SUM"].tolist() == [[3.0] * 4]
    with pytest.raises(RunStopped):
        await processor.run(handle, numbers(4), None, deadline_ns=clock.now_ns() + 10 * NS_PER_MS)
    await processor.unload(handle)
    processor.close()


@pytest.mark.parametrize("times", [None, "", "{}", "[1]", '{"0": 1}', '{"1": 0}', '{"1": "x"}'])
async def test_network_without_emulated_times_is_not_loaded(tmp_path: Path, times: str | None) -> None:
    """The error names the key."""
    processor = EmulatedProcessor("e", workers=1, threads_per_run=1, loads_parallel_max=1)
    with pytest.raises(LoadFailed, match="emulated_ms"):
        await processor.load(form(tmp_path, times))
    processor.close()


def test_emulated_time_is_of_the_next_larger_batch_or_in_proportion() -> None:
    """In proportion beyond the largest batch."""
    emulated = Emulated(None, times_of('{"1": 10, "4": 20}'))  # type: ignore[arg-type]  # nothing is run
    assert [emulated.run_ms(items) for items in (1, 2, 4, 8)] == [10.0, 20.0, 20.0, 40.0]


async def test_guarded_build_on_an_emulated_processor_is_refused(tmp_path: Path) -> None:
    """No guard computes on the only processor of such a box: builds and texts are refused, with the reason."""
    inner = EmulatedProcessor("e", workers=1, threads_per_run=1, loads_parallel_max=1)
    guarded = GuardedProcessor(inner, SystemClock(), GuardOptions(scratch=tmp_path / "scratch"))
    try:
        with pytest.raises(LoadFailed, match="none computes on 'emulated'"):
            await guarded.load(replace(form(tmp_path, '{"1": 1}'), kind="emulated", guarded_for="harbour"))
        with pytest.raises(LoadFailed, match="none computes on 'emulated'"):
            await guarded.tokenize(TokenOrder(str(tmp_path / "tokens"), ["ahoy"], 8, is_list=False), "b", "harbour")
        assert guarded.forkserver_pid == 0
    finally:
        guarded.close()
