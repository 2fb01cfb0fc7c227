"""Outputs as pictures: which kind is asked for, what is one, and that what can be kept is kept."""

import cv2
import numpy as np
import pytest

from appliance.tasks.pictures import JPEG, PNG, kind_of, picture_of, wanted


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", None),
        ("*/*", None),
        ("image/*", None),
        ("application/json", None),
        ("image/png", PNG),
        ("IMAGE/JPEG", JPEG),
        ("image/jpeg, image/png", PNG),
        ("image/png;q=0.5, image/jpeg;q=0.8", JPEG),
        ("application/json;q=0.9, image/png;q=0.4", None),
        ("application/json, image/png", PNG),
        ("image/png;q=0", None),
        ("image/png;q=much", None),
    ],
)
def test_accept_header_selects_the_picture_format(accept: str, kind: str | None) -> None:
    """A picture only where the header names a format, and prefers it no less than JSON."""
    assert wanted(accept) == kind


def read(encoded: bytes | None) -> np.ndarray:
    assert encoded is not None
    return np.asarray(cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_UNCHANGED))


def test_depth_picture_has_sixteen_bits() -> None:
    """From its least to its greatest value, whatever its unit; the axes in front are of no account."""
    depth = np.linspace(0.5, 80.0, 24 * 32, dtype=np.float32).reshape(1, 1, 24, 32)
    encoded = picture_of({"depth": depth}, PNG)
    found = read(encoded)
    assert encoded is not None
    assert kind_of(encoded) == PNG
    assert found.shape == (24, 32)
    assert found.dtype == np.dtype("uint16")
    assert np.allclose(found / 65535 * 79.5 + 0.5, depth[0, 0], atol=0.01)
    grey = picture_of({"depth": depth}, JPEG)
    assert grey is not None
    assert kind_of(grey) == JPEG
    assert read(grey).dtype == np.uint8


def test_mask_picture_keeps_the_numbers_of_the_mask() -> None:
    """Of classes and instances; truth values are black and white."""
    mask = np.arange(6 * 8).reshape(1, 6, 8)
    assert np.array_equal(read(picture_of({"mask": mask}, PNG)), mask[0])
    assert np.array_equal(read(picture_of({"mask": mask * 1000}, PNG)), mask[0] * 1000)
    assert np.array_equal(read(picture_of({"mask": mask > 7}, PNG)), (mask[0] > 7) * 255)


@pytest.mark.parametrize("shape", [(8, 6, 3), (1, 3, 8, 6), (3, 8, 6)])
def test_colour_picture_keeps_the_channel_order(shape: tuple[int, ...]) -> None:
    """Red is first in a tensor, channels first or last."""
    tensor = np.zeros(shape, np.uint8)
    if shape[-1] == 3:
        tensor[..., 0] = 200
    else:
        tensor[..., 0, :, :] = 200
    found = read(picture_of({"picture": tensor}, PNG))
    assert found.shape == (8, 6, 3)
    assert found[0, 0].tolist() == [0, 0, 200]


@pytest.mark.parametrize(
    "outputs",
    [
        {},
        {"a": np.zeros((4, 4)), "b": np.zeros((4, 4))},
        {"a": np.zeros(4)},
        {"a": np.zeros((1, 4))},
        {"a": np.zeros((2, 4, 4))},
        {"a": np.zeros((4, 4, 5))},
        {"a": np.array([["x", "y"], ["z", "w"]], object)},
        {"a": np.zeros((4, 4), np.complex64)},
    ],
    ids=["none", "two", "a list", "one row", "two channels", "five channels", "text", "complex"],
)
def test_output_that_is_no_picture_stays_json(outputs: dict[str, np.ndarray]) -> None:
    assert picture_of(outputs, PNG) is None


def test_picture_of_nan_and_infinite_values_is_encoded() -> None:
    """And a plane that has one value."""
    odd = np.array([[np.nan, 1.0], [np.inf, -np.inf], [0.0, 0.5]], np.float32)
    assert read(picture_of({"a": odd}, PNG)).tolist() == [[0, 65535], [65535, 0], [0, 32768]]
    assert not read(picture_of({"a": np.full((4, 4), np.nan)}, PNG)).any()
    huge = np.array([[-1.7e308, 1.7e308], [0.0, 0.0]])
    assert read(picture_of({"a": huge}, PNG))[0].tolist() == [0, 65535]
    assert not read(picture_of({"a": np.full((4, 4), 7.5)}, PNG)).any()
    assert kind_of(b'{"labels": []}') is None
