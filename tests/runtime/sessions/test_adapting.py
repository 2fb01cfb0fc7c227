"""Sessions as the planner of latency sees them."""

import pytest

from appliance.policies.sending.pictures import QUALITY_LOW, quality_share
from appliance.runtime.sessions.adapting import FrameOverhead, client_of
from tests.runtime.sessions.stage import Stage


def test_device_that_lowers_quality_is_planned_with_smaller_frames() -> None:
    """At one size a device lowers the quality before the size: a larger network may be in time that would not be at the
    plan's.
    """
    live = Stage().live
    before = client_of(live, 1.0, FrameOverhead(0.0, 0.0))
    live.lowers_quality = True
    after = client_of(live, 1.0, FrameOverhead(0.0, 0.0))
    assert after.bandwidth_bps / before.bandwidth_bps == pytest.approx(1.0 / quality_share(QUALITY_LOW))
    assert after.slo_ms == before.slo_ms


def test_cautious_plan_counts_on_less_link_for_deadlines_only() -> None:
    """Cautious plans count on less of a link for deadlines, and on as much of it for the rate."""
    live = Stage().live
    cautious, bold = (client_of(live, 1.0, FrameOverhead(0.0, 0.0), is_cautious=one) for one in (True, False))
    assert bold.bandwidth_bps / cautious.bandwidth_bps == pytest.approx(live.link.margin)
    assert cautious.transfer_ms_max / bold.transfer_ms_max == pytest.approx(live.link.margin)
