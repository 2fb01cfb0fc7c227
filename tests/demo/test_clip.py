"""A device of the demo that streams: what it reports of answers, of frames without one, and of its promise."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from appliance.clock import SystemClock
from appliance.demo import clip
from appliance.demo.fleet import DeviceOrder
from tests.fakes.session_box import session_box

pytestmark = pytest.mark.usefixtures("ports")

FOUND = {"objects": [{"box": [10.0, 10.0, 50.0, 60.0], "label": "walker", "score": 0.9}]}
FACTS = {"accuracy": 0.9, "warm": True}


class Enough(Exception):
    """It has reported what the test waits for."""


def test_clip_streams_and_reports_answers_failures_and_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its frames in turn, over and over."""
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.png"))
        cv2.imwrite(paths[-1], np.full((60, 80, 3), 40 * number, np.uint8))
    reports: list[dict[str, Any]] = []

    def report(**facts: Any) -> None:
        reports.append(facts)
        kinds = [one["kind"] for one in reports]
        if kinds.count("answer") >= 5 and "session" in kinds and "failure" in kinds:
            raise Enough

    monkeypatch.setattr(clip, "report", report)
    with session_box(lambda frame, body: FOUND | FACTS, drops=frozenset(range(3, 5000, 4))) as box:
        order = DeviceOrder(box.url, "key", "objects", "object-detection", 20.0, tuple(paths), is_clip=True)
        with pytest.raises(Enough):
            clip.Clip(order, SystemClock()).run()
        assert box.orders[0]["promise"] == {"kind": "latency", "slo_ms": 500.0, "rate_rps": 20.0}
        assert box.ended == ["s-1"]
    answer = next(one for one in reports if one["kind"] == "answer")
    assert (answer["variant"], answer["recognised"]) == ("a-320", "walker")
    session = next(one for one in reports if one["kind"] == "session")
    assert (session["promised"], session["windows"], session["kept"]) == ("20/s within 500 ms", 2, 1)
