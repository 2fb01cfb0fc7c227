"""Frames, the engine and the serve loop together, in virtual time: what a stranger would measure."""

import pytest

from appliance.domain.errors import PipelineNotPossible
from appliance.runtime.pipelines.live import LivePipeline
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.pipelines.whole import WholeBox, share

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

FIND = {"fine": Cost(run_ms=20), "coarse": Cost(run_ms=10)}
READ = {"fine": Cost(run_ms=8), "coarse": Cost(run_ms=4)}


@story
async def test_frames_are_late_for_a_second_at_most_after_a_jump_in_items() -> None:
    """From no object to eight on each frame."""
    whole = WholeBox(FIND, READ)
    live = whole.add()
    async with whole.working():
        camera = whole.film(live, 15)
        await whole.pause(5)
        assert share(camera.sent[:-3]) == 1.0
        whole.objects = 8
        changed_ms = whole.box.clock.now_ns() / 1e6
        await whole.pause(10)
    late = [one.at_ms for one in camera.sent if one.in_time is False]
    assert all(changed_ms - 400 <= at <= changed_ms + 1000 for at in late)
    assert {row.stage for row in present(live.plan).stages} == {"find", "crop", "read"}


@pytest.mark.nightly("minutes of many cameras")
@story
async def test_pipeline_with_more_frames_than_fit_takes_cheaper_variants() -> None:
    """Half as many frames again as the box can do with its best variants: hardly any is late, and afterwards the best
    variants are back.
    """
    whole = WholeBox(FIND, READ)
    whole.objects = 4
    live = whole.add()
    async with whole.working():
        camera = whole.film(live, 56)
        await whole.pause(20)
        assert present(live.plan).degraded
        assert live.figures["read"].variant == "coarse"
        camera.is_on = False
        quiet = whole.film(live, 10)
        await whole.pause(10)
        assert not present(live.plan).degraded
    assert share([one for one in camera.sent if one.at_ms > 2500]) >= 0.98
    assert share(quiet.sent[20:]) == 1.0
    assert live.figures["read"].variant == "fine"


@story
async def test_frames_of_admitted_clients_are_in_time() -> None:
    """Clients join until one is refused; all admitted clients send at the rate that they said; what runs cost is told,
    and adds up.
    """
    whole = WholeBox({"fine": FIND["fine"]}, {"fine": READ["fine"]})
    whole.objects = 3
    live = whole.add()
    cameras = []
    async with whole.working():
        for _ in range(20):
            try:
                client = await whole.pipelines.join(live.pipeline.id, 5.0, "t")
            except PipelineNotPossible:
                break
            cameras.append(whole.film(live, 5.0, client.id))
            await whole.pause(1.5)
        assert 6 <= len(cameras) <= 9
        await whole.pause(20)
        status = whole.pipelines.status(live.pipeline.id)
        assert status.cost.per_frame.seconds == pytest.approx(0.020 + 3 * 0.008, rel=0.05)
        assert status.cost.per_frame.price == pytest.approx(status.cost.per_frame.seconds, rel=1e-6)
        assert status.cost.per_second.seconds == pytest.approx(5.0 * len(cameras) * 0.044, rel=0.1)
    sent = [one for camera in cameras for one in camera.sent]
    assert share(sent) >= 0.98
    spent_ns = live.spending.total_ns + whole.box.engine.single_calls.total_ns
    assert spent_ns / 1e6 == pytest.approx(whole.box.engine.run_totals()[1], rel=0.01)


@pytest.mark.nightly("minutes of many cameras")
@story
async def test_overloaded_pipelines_share_the_processors_by_weight() -> None:
    """Far too many frames of both, with one variant each: as many frames are in time as the box can do."""
    whole = WholeBox({"fine": FIND["fine"]}, {"fine": READ["fine"]})
    whole.objects = 2
    one, two = whole.add("one", weight=2.0), whole.add("two", weight=1.0)
    async with whole.working():
        cameras = whole.film(one, 45), whole.film(two, 45)
        await whole.pause(25)
    kept = [sum(sent.in_time is True for sent in camera.sent if sent.at_ms > 5000) / 20 for camera in cameras]
    assert sum(kept) >= 0.9 * 2000 / 36
    assert kept[0] / sum(kept) >= 0.7 * 2 / 3
    assert kept[1] / sum(kept) >= 0.7 / 3


@pytest.mark.nightly("a long story")
@story
async def test_weight_counts_only_among_pipelines_of_the_same_tenant() -> None:
    """Another tenant's flood of frames leaves the frames of an admitted client in time, whatever weight the flood's
    pipelines have, and however many they are.
    """
    whole = WholeBox({"fine": FIND["fine"]}, {"fine": READ["fine"]})
    for name, cost in (("find", FIND["fine"]), ("read", READ["fine"])):
        whole.box.add(
            {"fine": cost}, name=name, tenant="u", task=whole.box.core.catalogue.entry(f"t/{name}").model.task
        )
    whole.objects = 2
    own = whole.add()
    floods = [whole.add(f"flood{at}", weight=1e6, tenant="u") for at in range(3)]
    async with whole.working():
        client = await whole.pipelines.join(own.pipeline.id, 20.0, "t")
        camera = whole.film(own, 20.0, client.id)
        await whole.pause(2)
        for flood in floods:
            whole.film(flood, 30.0)
        await whole.pause(10)
    assert share([sent for sent in camera.sent if sent.at_ms > 5000]) >= 0.95


@story
async def test_pipeline_without_a_plan_is_served_by_dispatch() -> None:
    """In a box without a serve loop, with early drop."""
    whole = WholeBox(FIND, READ)
    whole.objects = 2
    live = whole.add()
    async with whole.working(is_planned=False):
        camera = whole.film(live, 20)
        await whole.pause(5)
    assert live.plan is None
    assert share(camera.sent) == 1.0


@pytest.mark.nightly("a long story; a lost processor is in the gate with one application")
@story
async def test_pipeline_is_served_in_time_while_a_processor_is_lost() -> None:
    """For seven seconds, in the middle of runs: each frame is answered once and in time, the plans are made without the
    processor while it is away, with the variants that fit then, and with it again once it is back.
    """
    whole = WholeBox(FIND, READ, workers=1, twins=[(1, 1.0, 1.0)])
    whole.objects = 4
    live = whole.add()
    first, twin = whole.box.processor, whole.box.twins[0]
    async with whole.working():
        camera = whole.film(live, 25)
        await whole.pause(6)
        assert workers_of(live) == {"fake-cpu", "twin-0-cpu", "host"}
        assert live.figures["read"].variant == "fine"
        while not (twin.running and first.running):
            await whole.pause(0.001)
        assert live.frames.under_way
        whole.box.clusters[0].lose("it does not answer")
        await whole.pause(1)
        ran = len(twin.ran)
        assert workers_of(live) == {"cpu", "host"}
        assert present(live.plan).degraded
        await whole.pause(6)
        assert (live.figures["read"].variant, len(twin.ran)) == ("coarse", ran)
        whole.box.clusters[0].serve()
        await whole.pause(8)
        assert workers_of(live) == {"fake-cpu", "twin-0-cpu", "host"}
        assert not present(live.plan).degraded
        assert live.figures["read"].variant == "fine"
        assert len(twin.ran) > ran
    assert (live.frames.answered, live.frames.failed, live.frames.under_way) == (len(camera.sent), 0, 0)
    assert share(camera.sent) >= 0.98
    whole.box.assert_quiet()


def workers_of(live: LivePipeline) -> set[str]:
    """Types that its plan takes workers of."""
    return {row.worker for row in present(live.plan).stages}


@story
async def test_pipeline_recovers_soon_after_a_few_slow_seconds() -> None:
    """Runs are so slow for a moment that no frame could be in time: none is begun then, and soon after all are as
    before. The times that slow runs led to expect do not keep later frames from being tried.
    """
    whole = WholeBox({"v": Cost(run_ms=24, resident_bytes=10)}, {"v": Cost(run_ms=10, resident_bytes=10)})
    whole.objects = 1
    live = whole.add(slo_ms=60)
    costs = whole.box.processor.costs
    async with whole.working():
        await whole.pause(1)
        camera = whole.film(live, 10)
        await whole.pause(3)
        (read,) = [build for build, cost in costs.items() if cost.run_ms == 10]
        costs[read].run_ms = 90.0
        await whole.pause(3)
        assert share(camera.sent[-10:-1]) == 0.0
        costs[read].run_ms = 10.0
        await whole.pause(15)
    assert share(camera.sent[-50:-1]) == 1.0
    assert present(live.plan).feasible
