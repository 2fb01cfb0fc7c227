"""Random traffic with faults, deadlines, cancellations and commands: one answer each, no late run, no lost pin, no
mixed sequence.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import Application, Quota, StateSpec, TaskSpec, TensorSpec
from appliance.domain.errors import ApplianceError, LoadFailed, RunFailed
from appliance.domain.request import Request, Result, Tensors
from appliance.policies.dispatch import DISPATCH_POLICIES
from tests.fakes.clock import at_ms, story
from tests.fakes.engine import EngineBench, X, Y
from tests.fakes.processor import Cost
from tests.harness.lanes import examples
from tests.runtime.at_work import at_work

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

APPLICATIONS = ("a", "b", "c")
POISON = 13.0
"""The value that the fake model fails on."""


@dataclass(frozen=True)
class Call:
    """One request, or a command (`do`), at its time."""

    at_ms: int
    app: str
    x: int
    do: str = "infer"
    within_ms: int | None = None
    priority: int = 0
    variant: str | None = None
    cancel_ms: int | None = None


moments = st.integers(0, 200)
calls = st.builds(
    Call,
    moments,
    st.sampled_from(APPLICATIONS),
    st.integers(0, 20),
    within_ms=st.none() | st.integers(1, 200),
    priority=st.integers(0, 2),
    variant=st.none() | st.sampled_from(["best", "small", "none"]),
    cancel_ms=st.none() | st.integers(0, 150),
)
commands = st.builds(
    Call, moments, st.sampled_from(APPLICATIONS), st.just(0), do=st.sampled_from(["load", "unload", "retire"])
)
costs = st.builds(
    Cost,
    st.integers(5, 25),
    st.integers(5, 35),
    load_ms=st.sampled_from([0, 10, 50]),
    run_ms=st.sampled_from([1, 10, 40]),
    run_ms_by_batch=st.just({}) | st.fixed_dictionaries({2: st.sampled_from([1, 11]), 4: st.sampled_from([2, 12])}),
    unload_ms=st.sampled_from([0, 10]),
    failures=st.lists(st.just(LoadFailed(build_id="drawn", reason="drawn")), max_size=2),
)
groups = st.fixed_dictionaries({app: st.fixed_dictionaries({"best": costs, "small": costs}) for app in APPLICATIONS})


def model(inputs: Tensors) -> dict[str, Any]:
    if POISON in inputs["x"]:
        raise RunFailed(variant_id="v", reason="poison")
    return {"y": inputs["x"] * 2}


async def command(bench: EngineBench, application: Application, what: str) -> None:
    if what == "load":
        await bench.availability.load(application)
    elif what == "unload":
        await bench.availability.unload(application)
    else:
        await bench.availability.retire_model(application.model_id)


@examples(gate=120)
@given(
    group=groups,
    workers=st.integers(1, 3),
    queue_len=st.sampled_from([1, 3, 50]),
    drawn=st.lists(st.one_of(calls, calls, calls, commands), max_size=40),
)
@story
async def test_engine_answers_each_request_once_under_any_traffic(
    group: dict[str, dict[str, Cost]], workers: int, queue_len: int, drawn: list[Call]
) -> None:
    """Each call ends in its own result, an error of ours or the cancellation that the test sent; then everything is at
    rest and works.
    """
    bench = EngineBench(
        40, workers=workers, queue_len=queue_len, queue_total=2 * queue_len, wait_ms_max=200, model=model
    )
    applications = {app: bench.add(group[app], name=app, quota=Quota(concurrent_requests=20)) for app in APPLICATIONS}
    asked: list[Request] = []

    async def one(call: Call) -> Result | None:
        if call.do != "infer":
            await command(bench, applications[call.app], call.do)
            return None
        asked.append(
            bench.request(
                call.x, f"t/{call.app}", within_ms=call.within_ms, priority=call.priority, variant=call.variant
            )
        )
        return await bench.engine.infer(asked[-1])

    async with at_work(bench):
        answers = await played(bench, drawn, one)
        check_in_time(bench, asked)
        check_counts(bench, drawn, answers)
        await works_again(bench, applications)


@examples(gate=80)
@given(
    group=groups,
    twins=st.lists(
        st.tuples(st.integers(1, 2), st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.3, 1.0])),
        min_size=1,
        max_size=3,
    ),
    dispatch=st.sampled_from(sorted(DISPATCH_POLICIES)),
    threads=st.integers(1, 2),
    drawn=st.lists(calls, max_size=40),
)
@story
async def test_processor_groups_answer_each_request_once_under_any_traffic(
    group: dict[str, dict[str, Cost]],
    twins: list[tuple[int, float, float]],
    dispatch: str,
    threads: int,
    drawn: list[Call],
) -> None:
    """Whatever is true of how quick the groups are: one answer each, never more runs at once in a group than it has
    workers (a processor says so), nothing left at the end.
    """
    bench = EngineBench(160, wait_ms_max=200, model=model, twins=twins, dispatch=dispatch, threads=threads)
    applications = {app: bench.add(group[app], name=app) for app in APPLICATIONS}

    async def one(call: Call) -> Result:
        facts: dict[str, Any] = {"priority": call.priority, "variant": call.variant, "within_ms": call.within_ms}
        return await bench.infer(call.x, f"t/{call.app}", **facts)

    async with at_work(bench):
        await played(bench, drawn, one)
        counted = sum(len(one.ran) for one in (bench.processor, *bench.twins))
        assert counted == sum(one.runs for one in bench.group.statuses(*bench.engine.run_totals()))
        await works_again(bench, applications)


async def played(
    bench: EngineBench, drawn: list[Call], one: Callable[[Call], Coroutine[Any, Any, Result | None]]
) -> list[Any]:
    """What each call came to, begun at its time and cancelled where it says so; then nothing is under way."""
    start_ns = bench.clock.now_ns()

    async def begun(call: Call) -> Result | None:
        await at_ms(start_ns, call.at_ms, bench.clock.now_ns)
        return await one(call)

    async def cancelled(task: asyncio.Task[Any], call: Call) -> None:
        if call.cancel_ms is not None:
            await at_ms(start_ns, call.at_ms + call.cancel_ms, bench.clock.now_ns)
            task.cancel()

    tasks = [asyncio.create_task(begun(call)) for call in drawn]
    cancels = asyncio.gather(*(cancelled(task, call) for task, call in zip(tasks, drawn, strict=True)))
    answers: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
    await cancels
    await bench.pause(3000)
    for call, answer in zip(drawn, answers, strict=True):
        if isinstance(answer, asyncio.CancelledError):
            assert call.cancel_ms is not None
        elif isinstance(answer, BaseException):
            assert isinstance(answer, ApplianceError), repr(answer)
        elif call.do == "infer":
            assert answer.outputs["y"].tolist() == [2 * call.x]
            assert min(answer.queue_ns, answer.load_ns, answer.compute_ns) >= 0
    bench.assert_quiet()
    return answers


def check_in_time(bench: EngineBench, asked: list[Request]) -> None:
    """No run began after the deadline of one of its requests."""
    deadlines = {id(request.inputs): request.deadline_ns for request in asked}
    for requests, at_ns in zip(bench.processor.ran_for, bench.processor.ran_at_ns, strict=True):
        for inputs in requests:
            deadline_ns = deadlines[id(inputs)]
            assert deadline_ns is not None
            assert at_ns <= deadline_ns, "late work was run"


def check_counts(bench: EngineBench, story: list[Call], answers: list[Any]) -> None:
    """The statistics know every answer that an available application gave, by outcome."""
    counted: Counter[str] = Counter()
    for statistics in bench.telemetry.statistics.values():
        counted.update(statistics.outcomes)
    infers = [a for c, a in zip(story, answers, strict=True) if c.do == "infer"]
    assert counted["done"] == sum(isinstance(a, Result) for a in infers)
    errors = sum(isinstance(a, ApplianceError) for a in infers)
    assert counted["expired"] + counted["failed"] + counted["rejected"] <= errors


async def works_again(bench: EngineBench, applications: dict[str, Application]) -> None:
    """After all that, every application that can be loaded at all answers."""
    for name, application in applications.items():
        for cost in bench.processor.costs.values():
            cost.failures.clear()
        fits = [s for s in bench.catalogue.entry(application.id).servables.values() if s.peak_bytes <= bench.budget]
        if fits:
            await bench.availability.load(application, fits[0].variant.name)
            answer = await bench.infer(1, f"t/{name}", variant=fits[0].variant.name)
            assert answer.outputs["y"].tolist() == [2]
    bench.assert_quiet()


def summing(inputs: Tensors) -> dict[str, Any]:
    total = inputs["state"] + inputs["x"]
    return {"y": total, "state_out": total}


@dataclass(frozen=True)
class Talk:
    """A sequence that sends these values, some of which are cancelled under way."""

    name: str
    tenant: str
    values: list[tuple[int, int | None]]


talks = st.lists(
    st.builds(
        Talk,
        st.sampled_from(["s", "r"]),
        st.sampled_from(["t", "u"]),
        st.lists(st.tuples(st.integers(1, 9), st.none() | st.integers(0, 30)), min_size=1, max_size=6),
    ),
    max_size=4,
    unique_by=lambda talk: (talk.name, talk.tenant),
)


@examples(gate=80)
@given(talks=talks, workers=st.integers(1, 3))
@story
async def test_sequence_sums_exactly_its_own_answered_steps(talks: list[Talk], workers: int) -> None:
    """Sequences at once, with cancelled steps among them: each answer is the sum of exactly the steps of its own that
    were answered.
    """
    bench = EngineBench(workers=workers, model=summing)
    bench.add({"v": Cost(load_ms=5, run_ms=10)}, tenant="u", name="own")
    bench.add(
        {"v": Cost(load_ms=5, run_ms=10)},
        task=TaskSpec(state=(StateSpec("state", "state_out", (-1,)),)),
        inputs=[*X, TensorSpec("state", "FP32", (-1,))],
        outputs=[*Y, TensorSpec("state_out", "FP32", (-1,))],
    )

    async def talk(said: Talk) -> None:
        total, started = 0.0, False
        for value, cancel_ms in said.values:
            step = asyncio.create_task(
                bench.infer(value, sequence_id=said.name, sequence_start=not started, tenant=said.tenant)
            )
            if cancel_ms is not None:
                await at_ms(bench.clock.now_ns(), cancel_ms, bench.clock.now_ns)
                step.cancel()
            try:
                total += value
                assert (await step).outputs["y"].tolist() == [total]
                started = True
            except asyncio.CancelledError:
                total -= value

    async with at_work(bench):
        await asyncio.gather(*(talk(said) for said in talks))
        await at_ms(bench.clock.now_ns(), 100, bench.clock.now_ns)
        bench.assert_quiet()
