"""The way of a predict request in virtual time: nothing of it needs a real thread, HTTP or a store."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from appliance.domain.catalogue import Application
from appliance.domain.errors import BadMedia, DeadlineExceeded
from appliance.runtime.serving.predict import Call, Prediction, Predictor, PreparedMedia
from appliance.runtime.serving.spending import Spending
from appliance.tasks.base import Media, TokenOrder, TokenRows
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.media import FakeMedia
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work


class _Desk:
    """A predictor over the bench's engine, whose media takes 3 ms a piece."""

    def __init__(self, bench: EngineBench) -> None:
        self._clock = bench.clock
        self.media = FakeMedia(bench.clock, work_ms=3)
        self.predictor = Predictor(
            clock=bench.clock,
            catalogue=bench.catalogue,
            engine=bench.engine,
            sequences=bench.sequences,
            media=self.media,
            texts=self,
            asset_path=Path,
        )

    async def tokenize(
        self, order: TokenOrder, build_id: str, tenant: str, on_time: Callable[[int], None] = lambda took_ns: None
    ) -> TokenRows:
        """No task here has texts."""
        raise NotImplementedError

    async def ask(self, application: Application, values: list[float], timeout_ms: float | None = None) -> Any:
        media = Media(json.dumps({"inputs": {"x": values}}).encode())
        call = Call("t", "r", self._clock.now_ns(), timeout_ms=timeout_ms)
        return json.loads(await self.predictor.predict(application, media, call))

    async def prepare(self, application: Application, bodies: list[bytes]) -> list[PreparedMedia]:
        call = Call("t", "r", self._clock.now_ns())
        return await self.predictor.prepare(application, [Media(body) for body in bodies], call)

    async def ask_about(self, application: Application, prepared: PreparedMedia) -> Prediction:
        return await self.predictor.ask(application, prepared, Call("t", "r", self._clock.now_ns()))


@story
async def test_predict_answer_has_the_time_of_every_stage() -> None:
    """Decoding 3 ms, loading 100, computing 10, encoding 3; two at once share the one thread, and the second waits for
    it.
    """
    async with at_work(EngineBench(workers=2)) as bench:
        desk = _Desk(bench)
        application = bench.add({"v": Cost(load_ms=100, run_ms=10)})
        answer = await desk.ask(application, [1, 2])
        assert answer["outputs"]["y"]["data"] == [2, 4]
        assert (answer["variant"], answer["warm"]) == ("v", False)
        assert answer["timings_ms"] == {
            "decode": 3,
            "queue": 0,
            "load": 100,
            "wake": 0,
            "compute": 10,
            "encode": 3,
            "total": 116,
        }
        first, second = await asyncio.gather(desk.ask(application, [1]), desk.ask(application, [2]))
    assert (first["timings_ms"]["decode"], second["timings_ms"]["decode"]) == (3, 6)
    assert (first["timings_ms"]["total"], second["timings_ms"]["total"]) == (16, 19)


@story
async def test_predict_deadline_holds_over_all_stages() -> None:
    """It may pass while decoding, before computing or while encoding: the answer is the same, and not a moment later
    than that.
    """
    async with at_work(EngineBench()) as bench:
        desk = _Desk(bench)
        application = bench.add({"v": Cost(load_ms=0, run_ms=10)})
        await desk.ask(application, [1])
        for timeout_ms, runs in ((2.0, 1), (12.0, 1), (15.0, 2)):
            start_ns = bench.clock.now_ns()
            with pytest.raises(DeadlineExceeded) as late:
                await desk.ask(application, [1], timeout_ms)
            assert late.value.ran_ms == (10.0 if timeout_ms == 15.0 else None)
            assert bench.clock.now_ns() - start_ns <= timeout_ms * 1e6
            assert len(bench.processor.ran) == runs


@story
async def test_answer_that_is_written_after_the_slo_does_not_count_as_kept() -> None:
    """The run ends after 13 ms, and the answer is written after 16: an SLO between them is not kept. A caller in more
    haste than the SLO breaks none.
    """
    async with at_work(EngineBench()) as bench:
        desk = _Desk(bench)
        for name, slo_ms, timeout_ms, kept_late in (
            ("a", 15, None, (0, 1)),
            ("b", 17, None, (1, 0)),
            ("c", 17, 15, (0, 0)),
        ):
            application = bench.add({"v": Cost(load_ms=0, run_ms=10)}, name=name, slo_ms=slo_ms)
            with suppress(DeadlineExceeded):
                await desk.ask(application, [1], timeout_ms)
            promised = bench.telemetry.of_application(application.id)["v"].promised
            assert (promised.kept, promised.late) == kept_late, name


@story
async def test_prepared_media_are_decoded_in_one_turn_and_answered_as_data() -> None:
    """One hop for three pieces of media; a damaged piece spoils no other. The answers say what `predict` says, and what
    a queue was not asked to do early is done as ever.
    """
    async with at_work(EngineBench(workers=2)) as bench:
        desk = _Desk(bench)
        application = bench.add({"v": Cost(load_ms=0, run_ms=10)})
        whole = await desk.ask(application, [1, 2])
        begun_ns = bench.clock.now_ns()
        bodies = [b'{"inputs": {"x": [1, 2]}}', b"{", b'{"inputs": {"x": [3]}}']
        good, bad, other = await desk.prepare(application, bodies)
        assert bench.clock.now_ns() - begun_ns == 3e6
        found, last = await asyncio.gather(desk.ask_about(application, good), desk.ask_about(application, other))
        assert found.body == json.loads(found.text) == {"outputs": whole["outputs"]}
        assert last.body["outputs"]["y"]["data"] == [6]
        assert (found.variant, found.kind, found.timings.decode, found.timings.compute) == ("v", "cpu", 3e6, 10e6)
        with pytest.raises(BadMedia):
            await desk.ask_about(application, bad)


@story
async def test_predict_that_would_be_late_is_refused_before_decoding() -> None:
    """By the rule of the queue, and counted where that counts."""
    async with at_work(EngineBench()) as bench:
        desk = _Desk(bench)
        application = bench.add({"v": Cost(load_ms=0, run_ms=10)})
        await desk.ask(application, [1])
        now_ns = bench.clock.now_ns()
        desk.predictor.drop_late(application, Call("t", "r", now_ns, timeout_ms=10))
        with pytest.raises(DeadlineExceeded, match=r"expected to take 10\.0 ms"):
            desk.predictor.drop_late(application, Call("t", "r", now_ns, timeout_ms=9.9))
        assert bench.clock.now_ns() == now_ns
    outcomes = [one.outcomes for one in bench.telemetry.of_application(application.id).values()]
    assert sum(one.get("expired", 0) for one in outcomes) == 1
    assert [kind for kind, _ in bench.decisions.told if kind == "drop"] == ["drop"]


@story
async def test_processor_time_of_a_shared_run_is_metered_by_rows() -> None:
    """A request that shares a run pays for its own rows; a request that is cancelled pays, too; all together is the
    time that the processor was busy.
    """
    async with at_work(EngineBench()) as bench:
        application = bench.add({"v": Cost(load_ms=0, run_ms=10, run_ms_by_batch={4: 16})})
        mine = Spending()
        part = Spending(mine)
        await bench.infer(1)
        together = [bench.infer(number, meter=part if number < 2 else None) for number in range(4)]
        await asyncio.gather(*together)
        gone = asyncio.create_task(bench.infer(9, meter=mine))
        await bench.pause(4)
        gone.cancel()
        await bench.pause(20)
    _, busy_ms = bench.engine.run_totals()
    assert application.id == "t/app"
    assert mine.total_ns - part.total_ns == 10e6
    assert set(mine.by_kind) == {"cpu"}
    assert abs(mine.total_ns + bench.engine.single_calls.total_ns - busy_ms * 1e6) < 10
    assert 0 < part.total_ns < mine.total_ns
