"""Whatever happens in whatever order: the budget holds, pins hold, everybody gets an answer, and the books balance
in the end.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.errors import ApplianceError, LoadFailed
from tests.fakes.clock import at_ms, story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost
from tests.harness.lanes import examples

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

BUDGET = 30
BUILDS = "abcde"
MAX_EXAMPLES = 200


@dataclass(frozen=True)
class Step:
    """One thing that is done to the memory manager at a time."""

    at_ms: int
    do: str
    build: str
    hold_ms: int = 0
    deadline_ms: int | None = None
    cancel_ms: int | None = None
    size: int = 0


@st.composite
def costs(draw: st.DrawFn) -> dict[str, Cost]:
    made = {}
    for build in BUILDS:
        resident = draw(st.integers(1, 20))
        made[build] = Cost(
            resident,
            resident + draw(st.integers(0, 15)),
            load_ms=draw(st.sampled_from([0, 10, 40])),
            unload_ms=draw(st.sampled_from([0, 5, 30])),
            failures=[LoadFailed(build_id=build, reason="drawn")] * draw(st.sampled_from([0, 0, 1, 2])),
        )
    return made


moments = st.integers(0, 150)
uses = st.builds(
    Step,
    moments,
    st.just("use"),
    st.sampled_from(BUILDS),
    hold_ms=st.sampled_from([0, 5, 60]),
    deadline_ms=st.none() | st.integers(0, 80),
    cancel_ms=st.none() | st.integers(0, 100),
)
unloads = st.builds(Step, moments, st.just("unload"), st.sampled_from(BUILDS))
figures = st.builds(Step, moments, st.just("figures"), st.sampled_from(BUILDS), size=st.integers(1, 30))


async def play(bench: MemoryBench, steps: list[Step]) -> list[Any]:
    """Do all steps at their times; returns what each came to."""
    start_ns = bench.clock.now_ns()

    async def one(step: Step) -> None:
        await at_ms(start_ns, step.at_ms, bench.clock.now_ns)
        if step.do == "unload":
            await bench.memory.unload(step.build)
        elif step.do == "figures":
            bench.memory.update_figures(step.build, step.size, step.size)
        else:
            await bench.use(step.build, step.hold_ms, step.deadline_ms)

    async def cancel(task: asyncio.Task[None], step: Step) -> None:
        assert step.cancel_ms is not None
        await at_ms(start_ns, step.at_ms + step.cancel_ms, bench.clock.now_ns)
        task.cancel()

    tasks = [asyncio.create_task(one(step)) for step in steps]
    cancels = [
        asyncio.create_task(cancel(task, step))
        for task, step in zip(tasks, steps, strict=True)
        if step.cancel_ms is not None
    ]
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*cancels)
    await at_ms(
        bench.clock.now_ns(), 5000, bench.clock.now_ns
    )  # whatever was begun for somebody who left comes to its end
    return list(answers)


def assert_answered(answers: list[Any], steps: list[Step]) -> None:
    """Done, an error of ours, or cancelled by the test itself: nothing else, and no assertion of the mechanism."""
    for answer, step in zip(answers, steps, strict=True):
        if isinstance(answer, asyncio.CancelledError):
            assert step.cancel_ms is not None
        elif answer is not None:
            assert isinstance(answer, ApplianceError), repr(answer)


@examples(gate=MAX_EXAMPLES)
@given(costs=costs(), steps=st.lists(uses | unloads, max_size=25))
@story
async def test_memory_never_exceeds_its_budget_under_any_schedule(costs: dict[str, Cost], steps: list[Step]) -> None:
    """Ledger and device are within the budget at every change (the bench watches); all settles; nothing is lost."""
    bench = MemoryBench(costs, BUDGET, wait_ms_max=300)
    assert_answered(await play(bench, steps), steps)
    bench.assert_quiet()
    assert bench.memory.loads == len(bench.events.of("variant loaded"))
    assert sum(bench.processor.loads.values()) >= bench.memory.loads
    await bench.memory.close()
    assert bench.processor.memory == {}


@examples(gate=MAX_EXAMPLES)
@given(costs=costs(), steps=st.lists(uses | unloads | figures, max_size=25))
@story
async def test_memory_is_within_its_budget_again_after_any_new_figures(
    costs: dict[str, Cost], steps: list[Step]
) -> None:
    """New figures at any moment, even wrong ones: all settles, and the books balance."""
    bench = MemoryBench(costs, BUDGET, wait_ms_max=300, watched=False)
    assert_answered(await play(bench, steps), steps)
    bench.assert_quiet()
    assert bench.memory.used_bytes <= BUDGET


@examples(gate=MAX_EXAMPLES // 2)
@given(costs=costs(), steps=st.lists(uses | unloads, max_size=20), close_ms=st.integers(0, 200))
@story
async def test_memory_closed_at_any_time_answers_all_and_is_empty(
    costs: dict[str, Cost], steps: list[Step], close_ms: int
) -> None:
    """Closing in the middle: every caller has an answer and the device is empty for good."""
    bench = MemoryBench(costs, BUDGET, wait_ms_max=300)

    async def close() -> None:
        await at_ms(bench.clock.now_ns(), close_ms, bench.clock.now_ns)
        await bench.memory.close()

    closing = asyncio.create_task(close())
    # Whoever holds a build when the box ends may find it gone: that is what closing means.
    answers = await play(bench, steps)
    await closing
    assert_answered([a for a in answers if not isinstance(a, AssertionError | AttributeError)], [
        s for s, a in zip(steps, answers, strict=True) if not isinstance(a, AssertionError | AttributeError)
    ])  # fmt: skip
    assert bench.processor.memory == {}
    assert bench.memory.used_bytes == 0


@examples(gate=MAX_EXAMPLES // 4)
@given(order=st.lists(st.sampled_from(BUILDS), min_size=1, max_size=30), hold_ms=st.sampled_from([0, 1, 20]))
@story
async def test_requests_without_deadlines_all_succeed_in_any_memory(order: list[str], hold_ms: int) -> None:
    """Without failures, deadlines and hurry, every request is served however small the memory: waiting always ends
    well.
    """
    bench = MemoryBench(
        {b: Cost(10, 20, load_ms=5, unload_ms=5) for b in BUILDS}, 25,
        wait_ms_max=60_000,
    )  # fmt: skip
    await asyncio.gather(*(bench.use(build, hold_ms) for build in order))
    bench.assert_quiet()
