"""When a device sends, and what."""

from itertools import islice
from pathlib import Path

import pytest

from appliance.clock import NS_PER_MS
from appliance.demo.device import DeviceOrder, moments, shots
from tests.fakes.hand_clock import HandClock


def _order(task: str) -> DeviceOrder:
    return DeviceOrder("http://box", "key", "speech", task, 2.0, (Path("0.wav"), Path("1.wav"), Path("2.wav")))


def test_demo_device_stream_sends_one_sequence_a_round() -> None:
    """First and last pieces are marked, and each round has an id of its own."""
    paths, places = zip(*islice(shots(_order("voice-activity")), 6), strict=True)
    assert [path.name for path in paths] == ["0.wav", "1.wav", "2.wav"] * 2
    ends = [(place["sequence_start"], place["sequence_end"]) for place in places[:3]]
    assert ends == [(True, False), (False, False), (False, True)]
    assert len({place["sequence_id"] for place in places[:3]}) == 1
    assert places[0]["sequence_id"] != places[3]["sequence_id"]


def test_demo_device_sends_single_pictures_without_a_sequence() -> None:
    """Nothing is remembered between them."""
    sent = list(islice(shots(_order("image-classification")), 4))
    assert [place for _, place in sent] == [{}] * 4
    assert sent[3][0].name == "0.wav"


def test_demo_device_skips_moments_missed_during_a_slow_answer() -> None:
    """The device goes on at the next moment of its rhythm, without catching up."""
    clock = HandClock()
    begin_ns, rhythm = clock.now_ns(), moments(10.0, clock, clock.pass_s)
    next(rhythm)
    assert clock.now_ns() == begin_ns
    clock.pass_s(0.35)
    next(rhythm)
    assert clock.now_ns() - begin_ns == pytest.approx(400 * NS_PER_MS)
    next(rhythm)
    assert clock.now_ns() - begin_ns == pytest.approx(500 * NS_PER_MS)
