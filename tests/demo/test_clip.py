"""A device of the demo that streams: what it reports of answers, of frames without one, and of its promise."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from appliance.clock import SystemClock
from appliance.demo.device import Clip, DeviceOrder
from appliance.demo.figures import Report, Seen, Streamed
from tests.fakes.session_box import session_box

pytestmark = pytest.mark.usefixtures("ports")

FOUND = {"objects": [{"box": [10.0, 10.0, 50.0, 60.0], "label": "walker", "score": 0.9}]}
FACTS = {"accuracy": 0.9, "warm": True}


class Enough(Exception):
    """It has reported what the test waits for."""


def test_clip_streams_and_reports_answers_failures_and_promise(tmp_path: Path) -> None:
    """Its frames in turn, over and over."""
    paths = []
    for number in range(3):
        paths.append(tmp_path / f"{number}.png")
        cv2.imwrite(str(paths[-1]), np.full((60, 80, 3), 40 * number, np.uint8))
    reports: list[Report] = []

    def tell(report: Report) -> None:
        reports.append(report)
        kinds = [type(one) for one in reports]
        if kinds.count(Seen) >= 5 and Streamed in kinds and str in kinds:
            raise Enough

    with session_box(lambda frame, body: FOUND | FACTS, drops=frozenset(range(3, 5000, 4))) as box:
        order = DeviceOrder(box.url, "key", "objects", "object-detection", 20.0, tuple(paths))
        with pytest.raises(Enough):
            Clip(order, SystemClock(), tell).run()
        assert box.orders[0]["promise"] == {"kind": "latency", "slo_ms": 500.0, "rate_rps": 20.0}
        assert box.ended == ["s-1"]
    answer = next(one for one in reports if isinstance(one, Seen))
    assert (answer.variant, answer.recognised) == ("a-320", "walker")
    session = next(one for one in reports if isinstance(one, Streamed))
    assert (session.promised, session.windows, session.kept) == ("20/s within 500 ms", 2, 1)
