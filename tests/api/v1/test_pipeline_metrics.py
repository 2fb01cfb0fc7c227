"""What `/metrics` says of pipelines, over the whole engine in virtual time."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.api.v1 import metrics
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.pipelines.whole import WholeBox

OF = 'pipeline="signs",stage="{}",tenant="t"'


def _families(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """The samples by family and labels."""
    found: dict[str, dict[str, float]] = {}
    for line in "".join(lines).splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            family, _, of = name.partition("{")
            found.setdefault(family, {})[of.rstrip("}")] = float(value)
    return found


def _told(box: WholeBox) -> dict[str, dict[str, float]]:
    running: Any = SimpleNamespace(pipelines=box.pipelines, engine=box.box.core.engine)
    return _families([*metrics.of_pipelines(running, None), *metrics.of_serve_loop(running)])


def _assert_adds_up(box: WholeBox) -> None:
    """All pipelines and single calls have spent what the processors were busy for; media threads are none of these."""
    found = _told(box)
    of_pipelines = found["appliance_pipelines_seconds_total"]
    spent = sum(seconds for kind, seconds in of_pipelines.items() if kind != 'kind="host"')
    single = sum(found["appliance_single_seconds_total"].values())
    assert min(spent, single) > 0.0
    assert spent + single == pytest.approx(box.box.core.engine.run_totals()[1] / 1e3, rel=0.01)


@story
async def test_pipeline_metrics_count_items_and_late_frames_by_stage() -> None:
    """And ballooning; frames that come too fast are late in some stage, and their items dropped."""
    box = WholeBox({"v": Cost(run_ms=20)}, {"v": Cost(run_ms=10)}, workers=1)
    box.objects = 3
    live = box.add(slo_ms=100)
    async with box.working():
        box.film(live, 5)
        await box.pause(3)
        await box.box.infer(application="t/read")
        found = _told(box)
        items = found["appliance_pipeline_items_total"]
        assert items[OF.format("read")] == pytest.approx(3 * items[OF.format("find")], abs=9)
        assert len(found["appliance_pipeline_items_without_answer_total"]) == 3 * 3
        assert set(found["appliance_pipeline_ballooning"]) == {OF.format("find"), OF.format("read")}
        box.film(live, 60)
        await box.pause(2)
        found = _told(box)
        frames = found["appliance_pipeline_frames_total"]
        late_count, dropped_count = (frames[f'end="{end}",pipeline="signs",tenant="t"'] for end in ("late", "dropped"))
        assert dropped_count > 10
        of_stages = found["appliance_pipeline_late_frames_total"]
        # a frame may be both
        most = late_count + dropped_count + live.frames.under_way
        assert max(late_count, dropped_count) <= sum(of_stages.values()) <= most
        dropped = 'none="dropped",' + OF
        assert found["appliance_pipeline_items_without_answer_total"][dropped.format("find")] > 10


@story
async def test_pipeline_metrics_add_up_over_shared_runs() -> None:
    """Of two pipelines and single calls; also when one of the pipelines is deleted."""
    batched = Cost(run_ms=10, run_ms_by_batch={2: 12, 4: 16})
    box = WholeBox({"v": Cost(run_ms=8)}, {"v": batched})
    box.objects = 4
    one, two = box.add("one"), box.add("two")
    async with box.working():
        cameras = [box.film(live, 8) for live in (one, two)]
        for _ in range(10):
            await asyncio.gather(*(box.box.infer(float(at), "t/read") for at in range(3)))
            await box.pause(0.1)
        for camera in cameras:
            camera.is_on = False
        await box.pause(1)
        box.pipelines.remove(two.pipeline.id)
    _assert_adds_up(box)
    assert 'pipeline="two"' not in str(_told(box)["appliance_pipeline_items_total"])
