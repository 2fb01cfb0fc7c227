"""What is kept of frames that wait, and what is sent of them."""

import cv2
import numpy as np
import pytest

from appliance.client.device.encoding import encoded, kept
from tests.instances.scenes import scene


@pytest.mark.parametrize(("size_px", "shape"), [(320, (240, 320, 3)), (640, (480, 640, 3)), (1000, (480, 640, 3))])
def test_kept_frame_is_a_copy_no_larger_than_it_will_be_sent(size_px: int, shape: tuple[int, ...]) -> None:
    """For the camera writes over its own buffer."""
    frame = np.ascontiguousarray(scene(3)[:480, :640])
    mine = kept(frame, size_px)
    before = mine.copy()
    frame[:] = 0
    assert mine.shape == shape
    assert np.array_equal(mine, before)


@pytest.mark.parametrize("size_px", [320, 640])
def test_kept_frame_encodes_to_the_bytes_of_the_original(size_px: int) -> None:
    """At the size that it was kept for."""
    frame = np.ascontiguousarray(scene(3)[:480, :640])
    assert encoded(kept(frame, size_px), size_px, 75) == encoded(frame, size_px, 75)


def test_kept_frame_can_be_encoded_smaller_than_kept() -> None:
    """Where the link turns out to carry less."""
    jpeg = encoded(kept(np.ascontiguousarray(scene(3)[:480, :640]), 320), 160, 75)
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), 1)
    assert picture is not None
    assert picture.shape == (120, 160, 3)


def test_jpeg_is_kept_without_decoding() -> None:
    jpeg = b"any bytes"
    assert kept(jpeg, 320) is jpeg
