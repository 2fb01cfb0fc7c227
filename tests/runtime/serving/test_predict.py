"""The way of a predict request in virtual time: nothing of it needs a real thread, HTTP or a store."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.domain.catalogue import Application
from appliance.domain.errors import DeadlineExceeded
from appliance.runtime.serving.predict import Call, Predictor
from appliance.tasks.base import Media, TokenOrder, TokenRows
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.media import FakeMedia
from tests.fakes.processor import Cost


class _Desk:
    """A predictor over the bench's engine, whose media takes 3 ms a piece."""

    def __init__(self, bench: EngineBench) -> None:
        self._clock = bench.clock
        self.media = FakeMedia(bench.clock, work_ms=3)
        self._predictor = Predictor(
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
        return json.loads(await self._predictor.predict(application, media, call))


@story
async def test_every_part_takes_its_time() -> None:
    """Decoding 3 ms, loading 100, computing 10, encoding 3; two at once share the one thread, and the second waits
    for it.
    """
    bench = EngineBench(workers=2)
    desk = _Desk(bench)
    application = bench.add({"v": Cost(load_ms=100, run_ms=10)})
    async with bench.working():
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
    bench.assert_quiet()


@story
async def test_one_deadline_over_all() -> None:
    """It may pass while decoding, before computing or while encoding: the answer is the same, and not a moment later
    than that.
    """
    bench = EngineBench()
    desk = _Desk(bench)
    application = bench.add({"v": Cost(load_ms=0, run_ms=10)})
    async with bench.working():
        await desk.ask(application, [1])
        for timeout_ms, runs in ((2.0, 1), (12.0, 1), (15.0, 2)):
            start_ns = bench.clock.now_ns()
            with pytest.raises(DeadlineExceeded):
                await desk.ask(application, [1], timeout_ms)
            assert bench.clock.now_ns() - start_ns <= timeout_ms * 1e6
            assert len(bench.processor.ran) == runs
    bench.assert_quiet()
