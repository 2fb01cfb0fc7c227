"""What `/metrics` says of pipelines, over the whole engine in virtual time."""

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
