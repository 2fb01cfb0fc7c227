"""Sequences through the engine: each carries its own state, whatever happens to one of its steps."""

import asyncio
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import StateSpec, TaskSpec, Tenant, TensorSpec
from appliance.domain.errors import BadTensor, DeadlineExceeded, IllegalState
from appliance.domain.request import Tensors
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench, X
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work

SUMMING = TaskSpec(state=(StateSpec("state", "state_out", (-1,)),))


def summing(inputs: Tensors) -> dict[str, Any]:
    """`y` = everything that this sequence has been sent so far."""
    total = inputs["state"] + inputs["x"]
    return {"y": total, "state_out": total}


def summing_bench(workers: int = 1) -> EngineBench:
    bench = EngineBench(workers=workers, model=summing)
    bench.add(
        {"v": Cost(load_ms=0, run_ms=10)},
        task=SUMMING,
        inputs=[*X, TensorSpec("state", "FP32", (-1,))],
        outputs=[TensorSpec("y", "FP32", (-1,)), TensorSpec("state_out", "FP32", (-1,))],
        shared=True,
    )
    return bench


def y_of(result: Any) -> float:
    return float(result.outputs["y"][0])


@story
async def test_sequence_carries_its_state_until_its_end() -> None:
    """Each answer builds on the one before; at the end the state is forgotten. A request without a sequence starts from
    zeros and leaves no state.
    """
    async with at_work(summing_bench()) as bench:
        assert y_of(await bench.infer(1, sequence_id="s", sequence_start=True)) == 1
        assert [y_of(await bench.infer(2)) for _ in range(3)] == [2, 2, 2]
        assert y_of(await bench.infer(2, sequence_id="s")) == 3
        assert y_of(await bench.infer(3, sequence_id="s", sequence_end=True)) == 6
        assert bench.engine.status()["sequences"] == 0
        with pytest.raises(IllegalState):
            await bench.infer(1, sequence_id="s")
        assert y_of(await bench.infer(1, sequence_id="s", sequence_start=True)) == 1


@story
async def test_concurrent_sequences_are_not_mixed() -> None:
    """Many sequences at once over several workers, equal ids of two tenants among them: each adds up its own values
    only, in order.
    """
    bench = summing_bench(workers=3)
    bench.catalogue.put_tenant(Tenant("u"))

    async def sequence(tenant: str, name: str, values: list[int]) -> list[float]:
        first = asyncio.create_task(bench.infer(values[0], sequence_id=name, sequence_start=True, tenant=tenant))
        await settle()
        rest = [bench.infer(value, sequence_id=name, tenant=tenant) for value in values[1:]]
        return [y_of(r) for r in await asyncio.gather(first, *rest)]

    async with at_work(bench):
        sums = await asyncio.gather(
            sequence("t", "a", [1, 1, 1, 1]), sequence("u", "a", [10, 10, 10, 10]), sequence("t", "b", [5, 6, 7])
        )
    assert list(sums) == [[1, 2, 3, 4], [10, 20, 30, 40], [5, 11, 18]]


@story
async def test_failed_step_leaves_the_sequence_state_unchanged() -> None:
    """A refused or late request of a sequence changes nothing for the next one, nor one whose caller goes away: the
    next step is not held up.
    """
    async with at_work(summing_bench()) as bench:
        await bench.infer(1, sequence_id="s", sequence_start=True)
        with pytest.raises(BadTensor):
            await bench.infer(sequence_id="s", inputs={"q": np.ones(1, np.float32)})
        with pytest.raises(DeadlineExceeded):
            await bench.infer(5, sequence_id="s", within_ms=1)
        gone = asyncio.create_task(bench.infer(5, sequence_id="s"))
        await bench.pause(5)
        gone.cancel()
        assert y_of(await bench.infer(2, sequence_id="s")) == 3


@story
async def test_state_sent_by_the_caller_goes_before_the_kept_state() -> None:
    """A caller may keep the state itself."""
    async with at_work(summing_bench()) as bench:
        given = {"x": np.array([1], np.float32), "state": np.array([40], np.float32)}
        assert y_of(await bench.infer(inputs=given)) == 41
        assert y_of(await bench.infer(inputs=given, sequence_id="s", sequence_start=True)) == 41
        assert y_of(await bench.infer(1, sequence_id="s")) == 42


@story
async def test_sequence_keeps_its_state_whichever_outputs_are_requested() -> None:
    """An unknown output is bad input."""
    async with at_work(summing_bench()) as bench:
        result = await bench.infer(1, sequence_id="s", sequence_start=True, outputs=["y"])
        assert set(result.outputs) == {"y"}
        assert y_of(await bench.infer(1, sequence_id="s", outputs=["y"])) == 2
        with pytest.raises(BadTensor, match="no output 'q'"):
            await bench.infer(1, sequence_id="s", outputs=["q"])
        assert y_of(await bench.infer(1, sequence_id="s")) == 3


@story
async def test_constant_inputs_are_filled_in() -> None:
    """A scalar input with a fixed value needs no caller; a sequence id means nothing to a model without state. A whole
    number is given as what the input is, an integer or a float.
    """
    for datatype in ("INT64", "FP32"):
        async with at_work(EngineBench(model=lambda inputs: {"y": inputs["x"] * inputs["rate"]})) as bench:
            bench.add(
                {"v": Cost()}, task=TaskSpec(constants={"rate": 16}), inputs=[*X, TensorSpec("rate", datatype, ())]
            )
            assert y_of(await bench.infer(2)) == 32
            assert y_of(await bench.infer(2, sequence_id="s")) == 32
