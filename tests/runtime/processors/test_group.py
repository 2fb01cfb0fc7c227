"""Which processors share cores, and which run at the same time."""

from appliance.clock import LoopClock
from appliance.runtime.processors.cluster import Cluster
from appliance.runtime.processors.group import OwnCores, ProcessorGroup
from appliance.runtime.processors.member import Member
from tests.fakes.clock import story
from tests.fakes.processor import FakeProcessor


@story
async def test_groups() -> None:
    """A kind on the cores of all is in each of their groups; one with a device of its own is a group for as long as it
    takes runs.
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
async def test_one_group() -> None:
    """What shares the first one's cores is no group of its own."""
    clock = LoopClock()
    group = ProcessorGroup(FakeProcessor(clock), [Member(FakeProcessor(clock, kind="other"), clock)])
    assert [dict(one.kinds) for one in group.groups()] == [{"cpu": "", "other": ""}]
