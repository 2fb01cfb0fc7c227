"""What `appliance stream` shows of its devices."""

from types import SimpleNamespace
from typing import Any

import pytest

from appliance.cli import streaming
from appliance.cli.streaming import _as_options, _until_answered, in_time_of
from appliance.clock import NS_PER_MS


def test_frames_left_out_by_the_plan_are_no_misses() -> None:
    """A camera of 15 frames a second that is planned with one of them sends every fifteenth, all of them in time."""
    assert in_time_of({"captured": 870, "sent": 58, "answered": 58}) == "100.0%"
    assert in_time_of({"captured": 870, "sent": 58, "answered": 29}) == "50.0%"
    assert in_time_of({"captured": 3, "sent": 0, "answered": 0}) == "–"


class _Answers:
    """A device whose frames under way end one by one, each time that they are asked for."""

    def __init__(self, frames: int) -> None:
        self._left = frames

    @property
    def under_way(self) -> int:
        self._left = max(0, self._left - 1)
        return self._left


class _Clock:
    """Goes on by 10 ms with each look."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now_ns(self) -> int:
        self._now_ns += 10 * NS_PER_MS
        return self._now_ns


def test_stream_end_waits_for_frames_under_way_for_at_most_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(streaming, "pause_s", pauses.append)
    for frames, waited in ((1, 0), (4, 3), (10_000, 99)):
        pauses.clear()
        stay: Any = SimpleNamespace(device=_Answers(frames))
        clock: Any = _Clock()
        _until_answered([stay], clock)
        assert len(pauses) == waited


def test_offered_promise_is_shown_as_command_line_options() -> None:
    assert _as_options({"kind": "latency", "slo_ms": 84.0, "rate_rps": 12.5}) == "--slo-ms 84 --rate 12.5"
    assert _as_options({"kind": "accuracy", "drop_max": 0.05, "reference": "fresh"}) == "--drop 0.05"
