"""What a person reads of sessions."""

from typing import Any

from appliance.cli.sessions import list_row, promise_text, status_lines
from appliance.wire.sessions import SessionPlanShape, SessionShape
from tests.cli.blank import blank

SESSION: dict[str, Any] = {
    "id": "5f0c2a9be1d04377",
    "tenant": "harbour",
    "application": "gate",
    "name": "glasses",
    "fps": 15.0,
    "state": "served",
    "promise": {"kind": "latency", "slo_ms": 150.0, "rate_rps": 15.0, "accuracy_min": None},
    "plan": blank(SessionPlanShape, number=7, variant="fp32", size=320, interval=4.0, accuracy=0.9),
    **{"captured": 100, "sent": 40, "skipped": 60, "answered": 30, "late": 1, "dropped": 8, "lost": 1},
    "drops": {"hopeless": 6, "expired": 2},
    **{"accuracy_meaning": "agreement with fp32", "windows": 1, "kept": 1, "uplink_mbps": 14.2, "rtt_ms": 31.5},
}


def _shape(**changed: Any) -> SessionShape:
    return blank(SessionShape, **SESSION | changed)


def test_session_text_shows_promise_plan_frames_and_link() -> None:
    """Frames by how they ended and why."""
    assert list_row(_shape())[1:] == (
        *("glasses", "gate", "served", "15/s within 150 ms", "1 of 1", "40 of 100", "75.0%", "fp32", ""),
    )
    text = "\n".join(status_lines(_shape()))
    for told in (
        "harbour/5f0c2a9be1d04377 glasses   application gate   served",
        "15/s within 150 ms, of 15 frames a second",
        "1 of 1 window\n",
        "plan 7    fp32, 320 pixels, one frame of 4, agreement with fp32 0.900",
        "100 captured, 60 skipped, 40 sent: 30 in time, 1 late, 8 dropped (2: it was captured too long ago, or in the "
        "future; 6: it could no longer be in time), 1 lost",
        "14.2 Mbit/s up, 31.5 ms there and back",
    ):
        assert told in text, told


def test_waiting_pipeline_session_shows_reason_and_no_plan() -> None:
    waiting = _shape(application=None, pipeline="signs", state="waiting", reason="processor", plan=None, sent=0)
    assert list_row(waiting)[2:4] == ("signs", "waiting")
    assert list_row(waiting)[-3:] == ("–", "", "processor")
    text = "\n".join(status_lines(waiting))
    assert "pipeline signs   waiting (processor)" in text
    assert "plan      none" in text
    assert list_row(_shape(paused=True, state="suspended"))[3] == "paused"


def test_accuracy_session_shows_reference_and_recent_drop() -> None:
    own = _shape(promise={"kind": "accuracy", "drop_max": 0.05, "reference": "fresh"}, drop=0.021)
    assert promise_text(own) == "drop ≤ 0.05 against fresh"
    assert "drop      0.021 in the last window" in "\n".join(status_lines(own))
