"""Pictures become tensors: upright, resized as told, normalised, and coordinates find their way back."""

import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import ImageSpec, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia, BadMetadata
from appliance.tasks.base import Media, Target
from appliance.tasks.image import Frame, decode_picture, placement, read_pixels
from appliance.tasks.image_header import read_header
from tests.tasks import pictures

FREE = TensorSpec("x", "FP32", (-1, 3, -1, -1))
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def tensor_of(
    body: bytes,
    image: ImageSpec,
    tensor: TensorSpec = FREE,
    height: int | None = None,
    width: int | None = None,
    **params: Any,
) -> tuple[np.ndarray, Frame]:
    spec = TaskSpec(image=image, params=params)
    decoded = decode_picture(Media(body), spec, Target((tensor,), (), height, width))
    return decoded.steps[0][tensor.name], decoded.context


def corners(array: np.ndarray) -> list[tuple[int, ...]]:
    """RGB near the four corners of an NCHW tensor: top left, top right, bottom left, bottom right."""
    height, width = array.shape[2:]
    places = [
        (height // 8, width // 8),
        (height // 8, -width // 8),
        (-height // 8, width // 8),
        (-height // 8, -width // 8),
    ]
    return [tuple(int(value) for value in array[0, :, y, x].round()) for y, x in places]


def raw(**fields: Any) -> ImageSpec:
    """Pixels as they are, 0..255."""
    return ImageSpec(mean=(0.0,), std=(1.0,), **fields)


def near(found: list[tuple[int, ...]], wanted: list[tuple[int, ...]]) -> bool:
    return bool(np.abs(np.array(found) - np.array(wanted)).max() <= 12)


@pytest.mark.parametrize("extension", pictures.WITH_EXIF)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_picture_of_every_exif_orientation_is_decoded_upright(extension: str, orientation: int) -> None:
    """Red is top left, and the frame is that of the upright picture."""
    stored = pictures.disoriented(pictures.scene(64, 48), orientation)
    body, block = pictures.encoded(stored, extension), pictures.exif(orientation)
    if extension == ".jpg":
        body = pictures.jpeg_with_exif(body, block)
    elif extension == ".png":
        body = pictures.png_with_chunk(body, b"eXIf", block)
    else:
        body = pictures.webp_with_exif(body, stored.shape[1], stored.shape[0], block)
    array, frame = tensor_of(body, raw())
    assert (frame.width, frame.height) == (64, 48)
    assert array.shape == (1, 3, 48, 64)
    assert near(corners(array), [RED, GREEN, BLUE, WHITE])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiff_orientation_is_undone_once(orientation: int) -> None:
    """By the decoder of TIFF alone."""
    body = pictures.tiff(pictures.disoriented(pictures.scene(64, 48), orientation), {274: orientation})
    array, frame = tensor_of(body, raw())
    assert (frame.width, frame.height) == (64, 48)
    assert near(corners(array), [RED, GREEN, BLUE, WHITE])


@pytest.mark.parametrize("body", [pictures.encoded(pictures.scene(), ".bmp"), pictures.gif(pictures.scene())])
def test_bmp_and_gif_are_decoded(body: bytes) -> None:
    array, frame = tensor_of(body, raw())
    assert (frame.width, frame.height) == (64, 48)
    assert corners(array) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("orientation", [1, 6])
def test_large_jpeg_is_decoded_at_reduced_size_with_the_same_result(orientation: int) -> None:
    """Decoding at an eighth saves most of the time and changes no pixel visibly, upright or turned."""
    x, y = np.meshgrid(np.linspace(0, 1, 1601), np.linspace(0, 1, 1203))
    image = np.stack([200 * x, 255 * y, 127 + 100 * np.sin(9 * x + 5 * y)], axis=2).astype(np.uint8)
    jpeg = pictures.encoded(pictures.disoriented(image, orientation), ".jpg")
    jpeg = pictures.jpeg_with_exif(jpeg, pictures.exif(orientation))
    small, frame = tensor_of(jpeg, raw(), height=96, width=128)
    exact, _ = tensor_of(pictures.encoded(image), raw(), height=96, width=128)
    assert (frame.width, frame.height) == (1601, 1203)
    assert np.abs(small - exact).max() < 12
    assert np.abs(small - exact).mean() < 2
    place = placement(1601, 1203, ImageSpec(), (96, 128))
    assert read_pixels(jpeg, read_header(jpeg), (place,)).array.shape == (151, 201, 3)


def test_transparent_picture_is_laid_over_white() -> None:
    """Half transparent pixels are pale; the colour of fully transparent ones does not show."""
    image = np.dstack([pictures.scene(), np.full((48, 64), 255, np.uint8)])
    image[:24, :32, 3] = 0
    image[24:, :32, 3] = 128
    for extension in (".png", ".webp"):
        array, _ = tensor_of(pictures.encoded(image, extension), raw())
        assert near(corners(array), [WHITE, GREEN, (127, 127, 255), WHITE])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_grey_and_16_bit_pictures_give_the_same_tensor(dtype: type) -> None:
    """8 and 16 bits, grey, colour and with alpha, give the same tensor."""
    factor = np.iinfo(dtype).max // 255
    grey: np.ndarray = (np.arange(48 * 64).reshape(48, 64) % 256 * factor).astype(dtype)
    colour = np.dstack([grey, grey, grey])
    alpha = np.dstack([colour, np.full_like(grey, np.iinfo(dtype).max)])
    wanted = np.tile((grey // factor).astype(np.float32), (1, 3, 1, 1))
    for image in (grey, colour, alpha):
        array, _ = tensor_of(pictures.encoded(image), raw())
        np.testing.assert_array_equal(array, wanted)


def test_grey_palette_and_one_bit_pictures_are_decoded() -> None:
    """A one-bit PNG, a grey JPEG and a palette with a transparent entry are read too."""
    stripes = np.zeros((48, 64), np.uint8)
    stripes[:, ::2] = 255
    _, one_bit = cv2.imencode(".png", stripes, [cv2.IMWRITE_PNG_BILEVEL, 1])
    array, _ = tensor_of(one_bit.tobytes(), raw())
    np.testing.assert_array_equal(array[0, 0], stripes)
    array, _ = tensor_of(pictures.encoded(np.full((48, 64), 77, np.uint8), ".jpg"), raw())
    assert np.abs(array - 77).max() <= 1
    rows = b"".join(b"\0" + bytes([0] * 4 + [1] * 4) for _ in range(8))
    palette = (
        b"\x89PNG\r\n\x1a\n"
        + pictures.png_chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 3, 0, 0, 0))
        + pictures.png_chunk(b"PLTE", bytes([10, 20, 30, 1, 2, 3]))
        + pictures.png_chunk(b"tRNS", bytes([255, 0]))
        + pictures.png_chunk(b"IDAT", zlib.compress(rows))
        + pictures.png_chunk(b"IEND", b"")
    )
    array, _ = tensor_of(palette, raw())
    assert array[0, :, 0, 0].tolist() == [10, 20, 30]
    assert array[0, :, 0, 7].tolist() == [255, 255, 255]


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3, 2), (10_000, 1)])
@pytest.mark.parametrize("resize", ["stretch", "letterbox", "crop", "keep-height"])
def test_picture_of_odd_size_fits_every_resize(size: tuple[int, int], resize: str) -> None:
    """Strips and single pixels neither fail nor ask for huge tensors, with fixed sides and with free ones."""
    body = pictures.encoded(np.full((size[1], size[0], 3), 200, np.uint8))
    image = raw(resize=resize, multiple=32)
    fixed, _ = tensor_of(body, image, height=64, width=96)
    assert fixed.shape == (1, 3, 64, 96)
    assert np.abs(fixed.max() - 200) <= 1
    free, _ = tensor_of(body, image)
    assert free.size <= 3 * 2048 * 64
    if resize != "keep-height":
        assert free.shape[2] % 32 == free.shape[3] % 32 == 0


@pytest.mark.parametrize(("width", "height"), [(50_000, 50_000), (2**31 - 1, 1), (65_500, 65_500)])
def test_decompression_bomb_is_refused_by_its_header(width: int, height: int) -> None:
    """A few bytes that claim billions of pixels cost nothing."""
    png = pictures.encoded(pictures.scene())
    header = b"IHDR" + struct.pack(">II", width, height) + png[24:29]
    bomb = png[:12] + header + struct.pack(">I", zlib.crc32(header)) + png[33:]
    with pytest.raises(BadMedia, match="pixels"):
        tensor_of(bomb, ImageSpec())


def test_damaged_picture_is_refused() -> None:
    """A whole structure with broken content: the decoder gives up."""
    png = bytearray(pictures.encoded(np.random.default_rng(2).integers(0, 255, (50, 50, 3), np.uint8)))
    png[60:80] = bytes(20)
    with pytest.raises(BadMedia, match="damaged"):
        tensor_of(bytes(png), ImageSpec())
    jpeg = pictures.encoded(pictures.scene(), ".jpg")
    start = jpeg.index(b"\xff\xc0")
    with pytest.raises(BadMedia):
        tensor_of(jpeg[:start] + b"\xff\xd9", ImageSpec())


def test_picture_tensor_follows_normalisation_channels_layout_and_type() -> None:
    """(pixel - mean) / std per channel in the stated order, as NHWC or NCHW, in floats and in bytes."""
    image = np.full((8, 8, 3), (10, 20, 30), np.uint8)  # BGR
    body = pictures.encoded(image)
    mean, std = (1.0, 2.0, 3.0), (2.0, 4.0, 8.0)
    rgb, _ = tensor_of(body, ImageSpec(mean=mean, std=std))
    np.testing.assert_allclose(rgb[0, :, 0, 0], [(30 - 1) / 2, (20 - 2) / 4, (10 - 3) / 8])
    nhwc = TensorSpec("x", "FP16", (1, 8, 8, 3))
    bgr, _ = tensor_of(body, ImageSpec(layout="NHWC", channels="BGR", mean=mean, std=std), nhwc)
    assert (bgr.shape, str(bgr.dtype), bgr.flags.c_contiguous) == ((1, 8, 8, 3), "float16", True)
    np.testing.assert_allclose(bgr[0, 0, 0], [(10 - 1) / 2, (20 - 2) / 4, (30 - 3) / 8])
    grey, _ = tensor_of(body, raw(channels="GRAY"), TensorSpec("x", "UINT8", (1, 8, 8)))
    assert (grey.shape, str(grey.dtype), int(grey[0, 0, 0])) == ((1, 8, 8), "uint8", 22)
    low, _ = tensor_of(body, ImageSpec(mean=(100.0,), std=(1.0,)), TensorSpec("x", "UINT8", (1, 3, 8, 8)))
    assert low.max() == 0  # clipped, not wrapped


def test_letterbox_resize_pads_below_and_right() -> None:
    """The picture keeps its shape; padding has the value of its pixel after normalisation."""
    array, frame = tensor_of(
        pictures.encoded(pictures.scene(64, 32)),
        ImageSpec(resize="letterbox", mean=(10.0,), std=(2.0,), pad_value=114),
        height=64,
        width=64,
    )
    assert np.unique(array[:, :, 32:]).tolist() == [52.0]
    assert near(corners(array[:, :, :32] * 2 + 10), [RED, GREEN, BLUE, WHITE])
    assert (frame.scale_x, frame.scale_y, frame.offset_x) == (1.0, 1.0, 0.0)


def test_crop_resize_takes_the_middle() -> None:
    """The short side fills the input (less the share that is cut), and the middle of the long side is kept."""
    image = np.zeros((40, 100, 3), np.uint8)
    image[:, 30:70] = 255
    array, frame = tensor_of(pictures.encoded(image), raw(resize="crop"), height=20, width=20, crop_share=1.0)
    assert array.min() == 255
    assert frame.offset_x == 30
    smaller, frame = tensor_of(pictures.encoded(image), raw(resize="crop"), height=20, width=20, crop_share=0.5)
    assert (frame.offset_x, frame.offset_y) == (40, 10)
    assert smaller.shape == (1, 3, 20, 20)


def test_keep_height_resize_follows_the_aspect() -> None:
    """Width grows with the picture, is padded to the multiple, and is squeezed where the graph bounds it."""
    body = pictures.encoded(np.full((10, 50, 3), 9, np.uint8))
    image = raw(resize="keep-height", height=48, multiple=32, pad_value=255.0)
    array, _ = tensor_of(body, image)
    assert array.shape == (1, 3, 48, 256)
    assert array[0, 0, 0, 239] == 9
    assert array[0, 0, 0, 240] == 255
    squeezed, _ = tensor_of(body, image, TensorSpec("x", "FP32", (1, 3, 48, 100)))
    assert squeezed.shape == (1, 3, 48, 100)
    assert squeezed.max() == 9


def test_graph_with_contradicting_picture_input_is_refused() -> None:
    """A channel count that the metadata contradicts, or no picture input at all, is the metadata's fault."""
    body = pictures.encoded(pictures.scene())
    with pytest.raises(BadMetadata, match="channels"):
        tensor_of(body, ImageSpec(), TensorSpec("x", "FP32", (1, 1, 8, 8)))
    with pytest.raises(BadMetadata, match="rank 4"):
        tensor_of(body, ImageSpec(), TensorSpec("x", "FP32", (1, 8)))


sides = st.integers(1, 3000)


@given(
    sides, sides, st.integers(1, 900), st.integers(1, 900), st.sampled_from(["stretch", "letterbox", "crop"]), st.data()
)
def test_picture_coordinates_map_to_the_tensor_and_back(
    width: int, height: int, input_width: int, input_height: int, resize: str, data: Any
) -> None:
    """A point of the tensor's filled part is found at the same place of the window in the original, for any sizes."""
    place = placement(width, height, ImageSpec(resize=resize), (input_height, input_width))
    assert place.size == (input_width, input_height)
    assert 1 <= place.filled[0] <= input_width
    assert 1 <= place.filled[1] <= input_height
    x, y, window_width, window_height = place.window
    assert x >= 0
    assert y >= 0
    assert x + window_width <= width + 1e-6
    assert y + window_height <= height + 1e-6
    frame = Frame(width, height, *place.size, window_width / place.filled[0], window_height / place.filled[1], x, y)
    share = np.array(data.draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
    point = np.array([x, y]) + share * (window_width, window_height)
    inside = share * place.filled
    np.testing.assert_allclose(frame.to_original(inside), point, atol=1e-6)


def test_drawn_mark_maps_back_to_its_place_in_the_original() -> None:
    """The brightest pixel of the tensor, mapped back, is the mark in the original: geometry and pixels agree."""
    for resize in ("stretch", "letterbox", "crop"):
        image = np.zeros((301, 407, 3), np.uint8)
        cv2.circle(image, (180, 120), 6, WHITE, -1)
        array, frame = tensor_of(pictures.encoded(image, ".jpg"), raw(resize=resize), height=128, width=160)
        y, x = np.nonzero(array[0, 0] > 128)
        found = frame.to_original(np.array([x.mean() + 0.5, y.mean() + 0.5]))
        assert np.abs(found - (180.5, 120.5)).max() < 1.0, resize


@pytest.mark.parametrize(
    ("image", "size", "expected"),
    [
        (raw(), (1200, 800), (277, 416)),  # 640 x 416 are allowed: the width decides, the aspect stays
        (raw(multiple=100), (1200, 800), (300, 400)),
        (raw(), (100, 60), (60, 100)),  # smaller than allowed: as ever
        (raw(height=64, resize="keep-height"), (3200, 64), (64, 416)),  # a line of text is squeezed
        (raw(height=64), (3200, 64), (64, 416)),
    ],
)
def test_picture_larger_than_the_variant_takes_is_scaled_to_fit(
    image: ImageSpec, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    """No usual picture is refused for its size, and coordinates find their way back."""
    target = Target((FREE,), (), shape_max={"x": (8, 3, 640, 416)})
    decoded = decode_picture(Media(pictures.encoded(pictures.scene(*size))), TaskSpec(image=image), target)
    assert decoded.steps[0]["x"].shape == (1, 3, *expected)
    corner = decoded.context.to_original(np.array([expected[1], expected[0]]))
    assert tuple(corner) == pytest.approx(size, abs=1)
