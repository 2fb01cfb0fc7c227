"""What was lost of a picture stands in the answer's `warnings`; `tests/tasks` tells what is said of texts."""

import cv2
import numpy as np
import pytest

from tests.api.stand import Stand

pytestmark = pytest.mark.anyio


async def test_picture_with_a_missing_part_is_answered_with_warning(stand: Stand) -> None:
    """The end of the file is there, and nothing before it."""
    noise = np.random.default_rng(1).integers(0, 255, (30, 40, 3), np.uint8)
    whole = cv2.imencode(".jpg", cv2.resize(noise, (640, 480)))[1].tobytes()
    cut = whole[: len(whole) // 2] + b"\xff\xd9"
    device = stand.client("device")
    answers = [await device.post("/v1/applications/digits/predict", content=body) for body in (whole, cut)]
    told = [answer.json()["warnings"] for answer in answers]
    assert told == [[], ["the JPEG is damaged: the lower part of the picture is missing"]]
