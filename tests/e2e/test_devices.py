"""The SDK against a real box: streams, what both sides count, what is refused, and a box that is killed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from appliance.client.device import Accuracy, Box, Device, Latency, Promise, Shown, session
from appliance.clock import pause_s
from appliance.demo.zoo import toys
from appliance.domain.session import FrameEnd
from tests.e2e.conftest import Run
from tests.e2e.relay import Relay
from tests.e2e.server import Server

pytestmark = [pytest.mark.usefixtures("processes", "ports"), pytest.mark.timeout(400)]
TENANT = "harbour"
FPS = 20.0
PATIENCE = 2400
"""Frames, or looks, that something may take to come."""


@pytest.fixture(scope="module")
def server(furnished_server: Server) -> Server:
    """With a model of digits."""
    return furnished_server


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer to answer than a device on the street would wait."""
    monkeypatch.setattr(session, "TIMEOUT_S", 120.0)


@pytest.fixture
def picture(digits: toys.Digits) -> np.ndarray:
    path = min(digits.evaluation.glob("*.png"))
    picture = cv2.imread(str(path))
    assert picture is not None
    return cv2.resize(picture, (160, 120))


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    """An address of the box that stays over restarts."""
    with Relay(lambda: int(server.url.rsplit(":", 1)[1])) as running:
        yield running


def _device(server: Server, promise: Promise, url: str = "") -> Device:
    return Device(Box(url or server.url, server.admin_key, TENANT), "digits", fps=FPS, promise=promise)


def _until(device: Device, picture: np.ndarray, is_done: Callable[[Shown], bool]) -> Shown:
    for _ in range(PATIENCE):
        shown = device.see(picture)
        if is_done(shown):
            return shown
        pause_s(1.0 / FPS)
    raise AssertionError(f"{device.counts}, {device.state}, {device.error}, {device.box_says()}")


@pytest.mark.parametrize("promise", [Latency(slo_ms=3000.0, rate_rps=10.0), Accuracy(drop_max=0.5)])
def test_device_and_box_count_the_same_streamed_frames(server: Server, picture: np.ndarray, promise: Promise) -> None:
    """Labels are shown with their age; both sides count the same frames, but for those that the connection lost."""
    with _device(server, promise) as device:
        answered = device.counts.ends
        shown = _until(device, picture, lambda shown: answered[FrameEnd.ANSWERED] >= 5)
        assert shown.answer is not None
        assert shown.answer["labels"]
        assert shown.age_ms is not None
        counts = device.counts
        for _ in range(PATIENCE):  # what is under way ends without another frame
            said = device.box_says()
            if said["answered"] == counts.ends[FrameEnd.ANSWERED] and not device.under_way:
                break
            pause_s(0.05)
        assert said["answered"] == counts.ends[FrameEnd.ANSWERED]
        assert counts.sent - counts.ends[FrameEnd.LOST] <= said["sent"] <= counts.sent  # the lost may not have come
        assert said["state"] == shown.state == "served"
    assert counts.captured == counts.sent + counts.skipped
    assert counts.sent == counts.ends.total()


@pytest.mark.nightly("a server that is killed")
def test_device_resumes_its_session_after_a_box_kill(server: Server, relay: Relay, picture: np.ndarray) -> None:
    """As soon as the box is there."""
    with _device(server, Latency(slo_ms=3000.0, rate_rps=10.0), url=relay.url) as device:
        _until(device, picture, lambda shown: shown.answer is not None)
        device.box_says()  # stored: a join in the first seconds of a box is answered before there is a store
        server.kill()
        for _ in range(10):
            device.see(picture)
            pause_s(1.0 / FPS)
        server.start_again()
        before = device.counts.ends[FrameEnd.ANSWERED]
        _until(device, picture, lambda shown: device.counts.ends[FrameEnd.ANSWERED] > before + 2)
        assert device.reconnects >= 1
        assert device.box_says()["id"] == device.session["id"]


def test_stream_command_streams_two_devices_to_a_real_box(
    appliance: Run, server: Server, picture: np.ndarray, tmp_path: Path
) -> None:
    """For three seconds, in numbers."""
    photo = tmp_path / "photo.png"
    cv2.imwrite(str(photo), picture)
    options = f"--tenant {TENANT} -a digits --slo-ms 3000 --rate 5 --devices 2 --duration-s 3 --json"
    document = json.loads(appliance("stream", f"pan:{photo}", *options.split()))
    assert all(session["answered"] > 0 and session["state"] == "served" for session in document["sessions"])
    assert document["plans"]["count"] >= 2
