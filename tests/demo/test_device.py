"""When a device sends, and what."""

from itertools import islice

import pytest

from appliance.clock import NS_PER_MS
from appliance.demo.device import moments, shots
from appliance.demo.fleet import DeviceOrder
from tests.fakes.hand_clock import HandClock


def _order(is_stream: bool) -> DeviceOrder:
    return DeviceOrder("http://box", "key", "speech", "voice-activity", 2.0, ("0.wav", "1.wav", "2.wav"), is_stream)


def test_demo_device_stream_sends_one_sequence_a_round() -> None:
    """First and last pieces are marked, and each round has an id of its own."""
    sent = list(islice(shots(_order(is_stream=True)), 6))
    assert [shot.path.name for shot in sent] == ["0.wav", "1.wav", "2.wav"] * 2
    assert [(shot.is_first, shot.is_last) for shot in sent[:3]] == [(True, False), (False, False), (False, True)]
    assert len({shot.sequence_id for shot in sent[:3]}) == 1
    assert sent[0].sequence_id != sent[3].sequence_id


def test_demo_device_sends_single_pictures_without_a_sequence() -> None:
    """Nothing is remembered between them."""
    sent = list(islice(shots(_order(is_stream=False)), 4))
    assert all(shot.sequence_id is None and not shot.is_first and not shot.is_last for shot in sent)
    assert sent[3].path.name == "0.wav"


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
