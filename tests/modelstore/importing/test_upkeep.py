"""Upkeep begins when the box has nothing to do, and rests as soon as it has."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.child import RESTS
from appliance.clock import NS_PER_S, LoopClock
from appliance.domain.hardware import ProcessorDescription
from appliance.domain.names import build_id
from appliance.modelstore.importing.importer import ImportOptions
from appliance.modelstore.importing.upkeep import Upkeep
from tests.fakes.clock import story
from tests.fakes.waiting import until
from tests.modelstore.boxes import Parts, parts
from tests.modelstore.importing.asking import asked, imported, net
from tests.modelstore.importing.other_kind import OTHER, measured


class Box:
    """Requests that a story makes, and how the work of upkeep goes. To be made inside a running loop."""

    def __init__(self, idle_s: float = 5.0, wait_s: float = 600.0) -> None:
        self.clock = LoopClock()
        self.begun = self.running = 0
        self.upkeep = Upkeep(self.clock, lambda: (self.begun, self.running), idle_s, wait_s)
        self.worked_s = 0.0
        self.rested_s = 0.0

    async def pause(self, seconds: float) -> None:
        await self.clock.sleep_until_ns(self.clock.now_ns() + int(seconds * NS_PER_S))

    async def began_s(self) -> float:
        """How long it took until a piece might begin."""
        start_ns = self.clock.now_ns()
        while not await self.upkeep.may_begin():
            pass
        return (self.clock.now_ns() - start_ns) / NS_PER_S

    async def work(self, seconds: float) -> None:
        """A piece, whose children would stand still during rests."""
        while self.worked_s < seconds:
            rests = RESTS.get()
            await self.pause(0.1)
            if rests is not None and rests.lasted_s:
                self.rested_s += 0.1
            else:
                self.worked_s += 0.1


@story
async def test_upkeep_begins_after_a_while_without_requests() -> None:
    """The start of the box counts as one; a request under way is one all the time."""
    box = Box()
    assert await box.began_s() == pytest.approx(5.0, abs=0.1)
    box.begun = 1
    assert await box.began_s() == pytest.approx(5.0, abs=0.1)
    box.running = 1
    waiting = asyncio.create_task(box.began_s())
    await box.pause(60)
    assert not waiting.done()
    box.running = 0
    assert await waiting == pytest.approx(65.0, abs=0.2)


@story
async def test_upkeep_rests_while_there_are_requests() -> None:
    """The work goes on, with what it has, after a while without requests."""
    box = Box()
    await box.began_s()
    doing = asyncio.create_task(box.upkeep.do(box.work(10)))
    await box.pause(4)
    for _ in range(3):
        box.begun += 1
        await box.pause(2)
    assert await doing
    assert box.worked_s == pytest.approx(10, abs=0.5)
    assert box.rested_s == pytest.approx(9, abs=0.5)  # until 5 s after the last of them


@story
async def test_upkeep_work_that_rests_for_long_is_called_off() -> None:
    """The memory of the work is needed; at once where it is in the way of others. It begins anew another time."""
    box = Box()
    await box.began_s()
    doing = asyncio.create_task(box.upkeep.do(box.work(10)))
    await box.pause(1)
    box.running = 1
    assert not await doing
    assert box.rested_s == pytest.approx(60, abs=1)
    box.running, box.rested_s = 0, 0.0
    await box.began_s()
    doing = asyncio.create_task(box.upkeep.do(box.work(10), lambda: True))
    await box.pause(1)
    assert not doing.done()
    box.running = 1
    assert not await doing
    assert box.rested_s < 1


@story
async def test_upkeep_is_done_after_long_wait_beside_constant_requests() -> None:
    """A piece of work that has waited for long is done beside requests; the next one waits again."""
    box = Box(wait_s=100.0)
    box.running = 1
    assert await box.began_s() == pytest.approx(100.0, abs=0.1)
    assert await box.upkeep.do(box.work(10))
    assert box.rested_s == 0
    assert await box.began_s() == pytest.approx(100.0, abs=0.1)


@story
async def test_upkeep_passes_on_errors_and_ends_work_when_cancelled() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    box = Box(idle_s=0)
    assert await box.began_s() == 0
    with pytest.raises(ValueError, match="broken"):
        await box.upkeep.do(fails())
    ended = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    doing = asyncio.create_task(box.upkeep.do(waits()))
    await box.pause(1)
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert ended.is_set()


@pytest.mark.anyio
@pytest.mark.nightly("another whole import")
@pytest.mark.usefixtures("processes")
async def test_upkeep_finishes_imports_and_defers_remeasuring_of_known_models(tmp_path: Path) -> None:
    """On a box that always has a request under way: an imported model is measured on every kind (BA-19); a model that
    was there before, and is to be measured anew for another library, is not, until the box has nothing to do.
    """
    running = 1

    def parts_of(other: ProcessorDescription) -> AbstractAsyncContextManager[Parts]:
        options = ImportOptions(upkeep_idle_s=0.1, upkeep_wait_s=3600)
        return parts(tmp_path / "state", others=[other], options=options, requests=lambda: (0, running))

    async with parts_of(OTHER) as box:
        await imported(box, asked(net(tmp_path)))
        variant = (await measured(box)).variants[0]
    async with parts_of(replace(OTHER, fingerprint="library 3")) as box:
        anew = [build.id for build in box.builds.unmeasured()]
        assert anew == [build_id(variant.content_sha256, "openvino")]
        await imported(box, asked(net(tmp_path, seed=2), name="second"))
        await box.model_once(lambda one: one.other_profiles, "default/second")
        assert [build.id for build in box.builds.unmeasured()] == anew
        running = 0
        await until(lambda: not box.builds.unmeasured())
