"""Pictures that lack their rest are told from those that end in one colour."""

import cv2
import numpy as np
import pytest

from appliance.tasks.damage import lacks_its_rest
from appliance.tasks.image import read_pixels
from appliance.tasks.image_header import read_header
from tests.harness.lanes import seeds
from tests.present import present

LOST = ("the JPEG is damaged: the lower part of the picture is missing",)
KINDS = {
    "usual": [],
    "fine colours": [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444],
    "best tables": [cv2.IMWRITE_JPEG_OPTIMIZE, 1],
    "good": [cv2.IMWRITE_JPEG_QUALITY, 98],
    "restarts": [cv2.IMWRITE_JPEG_RST_INTERVAL, 7],
    "progressive": [cv2.IMWRITE_JPEG_PROGRESSIVE, 1],
}


def scene(seed: int, width: int, height: int, flat_from: float) -> np.ndarray:
    """Colours that run into one another, and one colour from a share of the height on."""
    rng = np.random.default_rng(seed)
    picture = cv2.resize(rng.integers(0, 255, (13, 17, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    picture[int(height * flat_from) :] = rng.integers(0, 255, 3)
    return picture


@pytest.mark.parametrize("seed", seeds(gate=1, nightly=10))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(640, 480), (1920, 1080), (200, 300), (33, 200), (1601, 1203)])
@pytest.mark.parametrize("flat_from", [1.0, 0.9, 0.5])
def test_whole_jpeg_has_no_damage_warning(seed: int, kind: str, size: tuple[int, int], flat_from: float) -> None:
    """However much of its end is of one colour."""
    body = cv2.imencode(".jpg", scene(seed, *size, flat_from), KINDS[kind])[1].tobytes()
    assert read_pixels(body, read_header(body)).warnings == ()
    data_at = read_header(body).data_at
    assert (data_at is None) is (kind == "progressive")
    for reduced in (2, 4, 8):
        pixels = present(cv2.imdecode(np.frombuffer(body, np.uint8), getattr(cv2, f"IMREAD_REDUCED_COLOR_{reduced}")))
        assert data_at is None or not lacks_its_rest(body, data_at, pixels, reduced)


@pytest.mark.parametrize("seed", seeds(gate=1, nightly=10))
@pytest.mark.parametrize("kind", ["usual", "fine colours", "best tables", "good"])
@pytest.mark.parametrize("size", [(640, 480), (1920, 1080), (480, 360), (1601, 1203)])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_truncated_jpeg_has_a_damage_warning(seed: int, kind: str, size: tuple[int, int], share: float) -> None:
    body = cv2.imencode(".jpg", scene(seed, *size, 1.0), KINDS[kind])[1].tobytes()
    begin = body.index(b"\xff\xda")
    cut = body[: begin + int((len(body) - begin) * share)] + b"\xff\xd9"
    assert read_pixels(cut, read_header(cut)).warnings == LOST
    pixels = present(cv2.imdecode(np.frombuffer(cut, np.uint8), cv2.IMREAD_REDUCED_COLOR_8))
    assert lacks_its_rest(cut, begin, pixels, 8)
