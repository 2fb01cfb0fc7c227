"""Which processors share cores, and which run at the same time."""

import asyncio
from typing import Any

import pytest

from appliance.clock import NS_PER_MS, LoopClock
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cluster import Cluster
from appliance.runtime.processors.group import OwnCores, ProcessorGroup
from appliance.runtime.processors.member import Member
from tests.fakes.clock import story
from tests.fakes.processor import FakeProcessor


@story
async def test_processor_groups_follow_shared_cores_and_devices() -> None:
    """A kind on the cores of all is in each of their groups; a kind with a device of its own is a group for as long as
    it takes runs.
    """
    clock = LoopClock()
    first, twin = FakeProcessor(clock, name="big", workers=2), FakeProcessor(clock, name="little", workers=4)
    other = Member(FakeProcessor(clock, kind="other"), clock)
    device = Member(FakeProcessor(clock, kind="device", workers=3), clock)
    group = ProcessorGroup(first, [other, device], [OwnCores(Cluster(twin, clock), 0.5)], clock=clock, apart=["device"])
    groups = group.groups()
    assert [(one.name, one.workers, dict(one.kinds), one.speed) for one in groups] == [
        ("big", 2, {"cpu": "", "other": ""}, 1.0),
        ("little", 4, {"cpu": "little", "other": ""}, 0.5),
        ("device", 3, {"device": ""}, 1.0),
    ]
    assert [one.is_serving() for one in groups] == [True, True, False]
    device.serve()
    assert groups[2].is_serving()
    assert [one.kind for one in group.describe_all()] == ["cpu", "other", "device"]
    assert [one.description.name for one in group.statuses(0, 0.0)] == ["big", "little", "other", "device"]
    assert group.copies == {"cpu": 1}


@story
async def test_processors_on_the_same_cores_are_a_single_group() -> None:
    clock = LoopClock()
    group = ProcessorGroup(FakeProcessor(clock), [Member(FakeProcessor(clock, kind="other"), clock)])
    assert [dict(one.kinds) for one in group.groups()] == [{"cpu": "", "other": ""}]


class Several(FakeProcessor):
    """It loads a build as often as it is asked to, and counts what has not left; each unload of it may fail."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__(clock)
        self.threads = 2
        self.there: set[int] = set()
        self.has_failed = False

    async def load(self, form: PreparedForm) -> Any:
        self.memory.pop(form.build_id, None)
        handle = await super().load(form)
        self.there.add(id(handle))
        return handle

    async def unload(self, handle: Any) -> None:
        self.there.remove(id(handle))
        if self.has_failed:
            raise OSError("a context was lost")


def with_copies() -> tuple[Several, list[Several], list[Cluster], ProcessorGroup]:
    """Three processors of one kind, whose runs have several threads: each has its own copy of a build."""
    clock = LoopClock()
    first, *twins = (Several(clock) for _ in range(3))
    clusters = [Cluster(twin, clock) for twin in twins]
    return first, twins, clusters, ProcessorGroup(first, (), [OwnCores(one) for one in clusters], clock=clock)


@story
async def test_unload_removes_all_copies_though_one_fails() -> None:
    first, twins, _, group = with_copies()
    build = await group.load(PreparedForm("b", "", 0, optimised=True))
    assert [len(one.there) for one in (first, *twins)] == [1, 1, 1]
    first.has_failed = True
    with pytest.raises(OSError, match="a context was lost"):
        await group.unload(build)
    assert [len(one.there) for one in (first, *twins)] == [0, 0, 0]


@story
async def test_processor_that_returns_during_a_load_has_a_single_copy() -> None:
    """The load makes a copy and so does the return: the second of them leaves."""
    first, twins, clusters, group = with_copies()
    loading = asyncio.create_task(group.load(PreparedForm("b", "", 0, optimised=True)))
    clock = LoopClock()
    await clock.sleep_until_ns(
        clock.now_ns() + 150 * NS_PER_MS
    )  # the first one's is there, and that of the first cluster is being loaded
    again = asyncio.create_task(group.copy_again(clusters[0]))
    build = await loading
    await again
    assert [len(one.there) for one in (first, *twins)] == [1, 1, 1]
    await group.unload(build)
    assert [len(one.there) for one in (first, *twins)] == [0, 0, 0]
