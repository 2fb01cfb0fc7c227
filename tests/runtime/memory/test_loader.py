"""The loader: from a build's name to a handle and back."""

import pytest

from appliance.clock import NS_PER_S, LoopClock
from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.memory.loader import Loader
from appliance.runtime.memory.manager import MemoryManager
from tests.fakes.clock import story
from tests.fakes.memory import without_applications
from tests.fakes.processor import Cost, FakeProcessor, Handle
from tests.fakes.sinks import Decisions, Events
from tests.fakes.source import FakeSource


@story
async def test_loader_hands_the_stored_form_to_the_processor_and_drops_it() -> None:
    processor = FakeProcessor(LoopClock())
    loader = Loader(FakeSource(), processor)
    handle = await loader.load("b")
    assert handle.build_id == "b"
    assert set(processor.memory) == {"b"}
    await loader.unload(handle)
    assert processor.memory == {}


@pytest.mark.parametrize(
    ("failure", "reason"), [(OSError("disk gone"), "OSError: disk gone"), (ValueError("x" * 1000), "ValueError: xxx")]
)
@story
async def test_load_that_raises_any_other_error_is_a_failed_load(failure: Exception, reason: str) -> None:
    """With the type and text of what happened below, cut to a readable length."""
    loader = Loader(FakeSource(), FakeProcessor(LoopClock(), {"b": Cost(failures=[failure])}))
    with pytest.raises(LoadFailed) as caught:
        await loader.load("b")
    assert caught.value.reason.startswith(reason)
    assert len(caught.value.reason) <= 300


@story
async def test_load_that_raises_an_appliance_error_keeps_its_message() -> None:
    """A missing content is one."""
    source = FakeSource()
    source.missing.add("b")
    with pytest.raises(LoadFailed, match="the content is missing"):
        await Loader(source, FakeProcessor(LoopClock())).load("b")


@story
async def test_parts_are_loaded_and_unloaded_together() -> None:
    """A part that does not load takes the parts with it that were there; a question about a part is answered by the
    whole.
    """
    source, costs = FakeSource(), {"c.1@npu": Cost()}
    processor = FakeProcessor(LoopClock(), costs)
    parts = {(0, "cpu"): "c.0@cpu", (1, "npu"): "c.1@npu"}
    loader = Loader(source, processor, lambda build_id: parts if build_id == "c.p@cpu+npu" else None)
    loaded = await loader.load("c.p@cpu+npu")
    assert {key: handle.build_id for key, handle in loaded.handles.items()} == parts
    assert [loader.holder_of(build) for build in ("c.1@npu", "b")] == ["c.p@cpu+npu", "b"]
    assert not loader.can_sleep(loaded)
    await loader.unload(loaded)
    assert (processor.memory, loader.holder_of("c.1@npu")) == ({}, "c.1@npu")
    costs["c.1@npu"].failures.append(LoadFailed(build_id="c.1@npu", reason="bad file"))
    with pytest.raises(LoadFailed):
        await loader.load("c.p@cpu+npu")
    assert processor.memory == {}
    assert processor.unloads == {"c.0@cpu": 2, "c.1@npu": 1}
    source.missing.add("c.1@npu")
    with pytest.raises(LoadFailed):
        await loader.load("c.p@cpu+npu")
    assert processor.loads["c.0@cpu"] == 2, "nothing is loaded where the file of one is missing"


@story
async def test_parts_sleep_and_wake_together() -> None:
    """What they keep adds up."""
    parts = {(at, "cpu"): f"c.{at}@cpu" for at in range(2)}
    costs = {build: Cost(resident_bytes=10, asleep_bytes=2) for build in parts.values()}
    processor = FakeProcessor(LoopClock(), costs)
    loader = Loader(FakeSource(), processor, lambda build_id: parts)
    loaded = await loader.load("c.p@cpu+npu")
    assert loader.can_sleep(loaded)
    assert await loader.sleep(loaded) == 4
    assert loader.wake_ns(loaded) == 6_000_000
    await loader.wake("c.p@cpu+npu", loaded)
    assert processor.memory == dict.fromkeys(parts.values(), 10)
    await loader.unload(loaded)


class Copies(FakeProcessor):
    """Like a real one it has a build several times, where it is asked to."""

    async def load(self, form: PreparedForm) -> Handle:
        self.memory.pop(form.build_id, None)
        return await super().load(form)

    def _drop(self, build_id: str) -> None:
        self.memory.pop(build_id, None)


@story
async def test_part_that_came_with_two_cuts_belongs_to_the_later_cut() -> None:
    """Also when the earlier one, which shares it, has left."""
    both = {"c.p1@cpu+npu": {(0, "cpu"): "c.0@cpu", (1, "npu"): "c.1@npu"}, "c.p2@cpu": {(0, "cpu"): "c.0@cpu"}}
    loader = Loader(FakeSource(), Copies(LoopClock()), both.get)
    earlier = await loader.load("c.p1@cpu+npu")
    await loader.load("c.p2@cpu")
    await loader.unload(earlier)
    assert [loader.holder_of(build) for build in ("c.0@cpu", "c.1@npu")] == ["c.p2@cpu", "c.1@npu"]


@story
async def test_part_that_was_loaded_by_itself_leaves_by_itself() -> None:
    """A cut that has this part among others stays; no record is left of the part."""
    clock, parts = LoopClock(), {(at, "cpu"): f"c.{at}@cpu" for at in range(2)}
    loader = Loader(FakeSource(), Copies(clock), lambda build_id: parts if build_id == "c.p@cpu" else None)
    arbiter = without_applications(100, Decisions())
    memory = MemoryManager(
        clock=clock, loader=loader, arbiter=arbiter, budget_bytes=100, wait_ms_max=1000, events=Events()
    )
    alone = await memory.pin("c.1@cpu", 10, 10, None)
    memory.unpin(await memory.pin("c.p@cpu", 20, 20, None))
    assert memory.known_builds() == ["c.p@cpu"], "who looks for builds of nobody would find a part of it"
    memory.unpin(alone)
    memory.dismiss("c.1@cpu")
    await clock.sleep_until_ns(clock.now_ns() + NS_PER_S)
    assert (memory.resident_set(), memory.build("c.1@cpu")) == (["c.p@cpu"], None)
    memory.unpin(await memory.pin("c.1@cpu", 10, 10, None))
    await memory.unload("c.1@cpu")
    assert (memory.resident_set(), memory.used_bytes) == (["c.p@cpu"], 20)
    await memory.unload("c.1@cpu")  # it came with the others only
    assert (memory.resident_set(), memory.used_bytes) == ([], 0)
