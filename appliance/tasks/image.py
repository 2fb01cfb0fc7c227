"""Picture bytes → upright pixels → the tensor that a network wants, and the way back for coordinates.

The source window is worked out first, in coordinates of the upright original; then only the pixels that are needed are
decoded (JPEG can be decoded at a half, quarter or eighth), cut, resized once and normalised once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from appliance.domain.catalogue import ImageSpec, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia, BadMetadata
from appliance.tasks.base import Decoded, Media, Pixels, Target, fed_inputs, number, with_constants
from appliance.tasks.damage import lacks_its_rest
from appliance.tasks.datatypes import dtype_of
from appliance.tasks.image_header import GIF, JPEG, PNG, ImageHeader, essential_gif, essential_png, read_header
from appliance.tasks.opencv import opencv

PIXELS_MAX = 50_000_000
"""More than any usual camera; a compressed file of a few kB can claim billions."""
DECODED_BYTES_MAX = 4 * PIXELS_MAX
"""Pictures with alpha or 16 bits cost more per pixel."""
_INPUT_SIDE_MAX = 8192
WIDTH_MAX = 2048
"""Of a line of text whose width is free."""
"""Longest side of an input tensor whatever the picture's shape, so that a strip of 1 x 60,000 pixels cannot ask for
gigabytes.
"""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a tensor's pixels lie in the upright original: x_original = x_input · scale_x + offset_x, likewise y.

    Pixels, edges at integers.
    """

    width: int
    height: int
    """Of the upright original."""
    input_width: int
    input_height: int
    scale_x: float
    scale_y: float
    offset_x: float = 0.0
    offset_y: float = 0.0

    def to_original(self, points: np.ndarray) -> np.ndarray:
        """Input coordinates → original ones, clipped to the picture.

        points: float[..., 2] as (x, y) → float64 of the same shape.
        """
        moved = np.asarray(points, np.float64) * (self.scale_x, self.scale_y) + (self.offset_x, self.offset_y)
        return np.clip(moved, 0.0, (self.width, self.height))


@dataclass(frozen=True, slots=True)
class Placement:
    """A window of the original (x, y, width, height) goes, resized to `filled`, to the top left of a tensor of
    `size` (both width, height).
    """

    window: tuple[float, float, float, float]
    filled: tuple[int, int]
    size: tuple[int, int]


def decode_picture(media: Media, spec: TaskSpec, target: Target) -> Decoded:
    """The one step of a picture task; its context is the `Frame`.

    Raises: BadMedia, BadMetadata (no input of the model takes a picture).
    """
    tensor = _picture_input(spec, target)
    image = spec.image or ImageSpec()
    _check_channels(tensor, image)
    given = media.pixels
    if given is None:
        header = read_header(media.body)
        _check_bounds(header)
        width, height = upright_size(header)
        place = _place(width, height, spec, target)
        given = read_pixels(media.body, header, (place,))
    else:
        width, height = given.width, given.height
        place = _place(width, height, spec, target)
    array = to_tensor(_cut_and_resize(given.array, (width, height), place), image, place, tensor)
    x, y, window_width, window_height = place.window
    frame = Frame(
        width,
        height,
        place.size[0],
        place.size[1],
        window_width / place.filled[0],
        window_height / place.filled[1],
        x,
        y,
    )
    return Decoded([with_constants({tensor.name: array}, spec, target)], frame, given.warnings)


def read_picture(body: bytes, wanted: Sequence[tuple[TaskSpec, Target]] | None = None) -> Pixels:
    """A picture decoded once, for several networks; `wanted`: what they are, where none needs more than its tensor
    takes. None: all of it is needed.

    Raises: BadMedia, BadMetadata (no input of a network takes a picture).
    """
    header = read_header(body)
    _check_bounds(header)
    width, height = upright_size(header)
    places = None if wanted is None else [_place(width, height, spec, target) for spec, target in wanted]
    return read_pixels(body, header, places)


def _place(width: int, height: int, spec: TaskSpec, target: Target) -> Placement:
    """Of a picture in the tensor that a network takes. Raises: BadMetadata."""
    tensor, image = _picture_input(spec, target), spec.image or ImageSpec()
    wanted, largest = _wanted_size(tensor, image, target), _largest_size(tensor, image, target)
    return placement(width, height, image, wanted, spec, largest)


def _picture_input(spec: TaskSpec, target: Target) -> TensorSpec:
    fitting = [tensor for tensor in fed_inputs(spec, target) if len(tensor.shape) in (3, 4)]
    if not fitting:
        raise BadMetadata(reason="the model has no input of rank 4 that could take a picture")
    return fitting[0]


def _check_channels(tensor: TensorSpec, image: ImageSpec) -> None:
    wanted = tensor.shape[-3 if image.layout == "NCHW" else -1]
    if wanted > 0 and wanted != (1 if image.channels == "GRAY" else 3):
        raise BadMetadata(
            reason=f"input {tensor.name!r} takes {wanted} channels in {image.layout}, which does not fit "
            f"{image.channels}"
        )


def _wanted_size(tensor: TensorSpec, image: ImageSpec, target: Target) -> tuple[int | None, int | None]:
    """(height, width) by the graph if it fixes them, else by the variant, else by the tenant's preference; None = by
    the picture.
    """
    first = {"NCHW": -2, "NHWC": -3}[image.layout]
    fixed_height, fixed_width = tensor.shape[first], tensor.shape[first + 1]
    height = fixed_height if fixed_height > 0 else target.height or image.height
    width = fixed_width if fixed_width > 0 else target.width or image.width
    return height, width


def _largest_size(tensor: TensorSpec, image: ImageSpec, target: Target) -> tuple[int, int]:
    """(height, width) beyond which the variant takes nothing."""
    shape = target.shape_max.get(tensor.name)
    if shape is None:
        return _INPUT_SIDE_MAX, _INPUT_SIDE_MAX
    first = {"NCHW": -2, "NHWC": -3}[image.layout]
    return min(shape[first], _INPUT_SIDE_MAX), min(shape[first + 1], _INPUT_SIDE_MAX)


def _check_bounds(header: ImageHeader) -> None:
    pixels = header.width * header.height
    if pixels > PIXELS_MAX:
        raise BadMedia(reason=f"the picture has {pixels} pixels; the box takes up to {PIXELS_MAX}")
    bytes_per_pixel = (4 if header.has_alpha else 3) * (2 if header.bit_depth == 16 else 1)
    if pixels * bytes_per_pixel > DECODED_BYTES_MAX:
        raise BadMedia(
            reason=f"the picture would take {pixels * bytes_per_pixel} bytes; the box takes up to {DECODED_BYTES_MAX}"
        )


def upright_size(header: ImageHeader) -> tuple[int, int]:
    """(width, height) once the orientation is applied."""
    if header.orientation >= 5:
        return header.height, header.width
    return header.width, header.height


def placement(
    width: int,
    height: int,
    image: ImageSpec,
    wanted: tuple[int | None, int | None],
    spec: TaskSpec | None = None,
    largest: tuple[int, int] = (_INPUT_SIDE_MAX, _INPUT_SIDE_MAX),
) -> Placement:
    """Which part of a `width` x `height` picture goes where. `wanted` is (height, width), None = free: then at most
    that of `largest`, to which larger pictures are scaled.
    """
    spec = spec or TaskSpec()
    if image.resize == "keep-height":
        return _keep_height(width, height, image, wanted, spec, largest)
    wanted_height, wanted_width = _fill_free_sides(width, height, image, wanted, spec, largest)
    size = (wanted_width, wanted_height)
    whole = (0.0, 0.0, float(width), float(height))
    if image.resize == "letterbox":
        scale = min(wanted_width / width, wanted_height / height)
        filled = (_side(width * scale, wanted_width), _side(height * scale, wanted_height))
        return Placement(whole, filled, size)
    if image.resize == "crop":
        scale = max(wanted_width / width, wanted_height / height) / number(spec, "crop_share", 0.875)
        window_width, window_height = min(width, wanted_width / scale), min(height, wanted_height / scale)
        window = ((width - window_width) / 2, (height - window_height) / 2, window_width, window_height)
        return Placement(window, size, size)
    return Placement(whole, size, size)


def _keep_height(
    width: int,
    height: int,
    image: ImageSpec,
    wanted: tuple[int | None, int | None],
    spec: TaskSpec,
    largest: tuple[int, int],
) -> Placement:
    """Height as wanted, width by the aspect; squeezed where the width is bounded, padded on the right up to it or to
    the multiple.
    """
    wanted_height, wanted_width = wanted
    wanted_height = wanted_height or min(48, largest[0])
    natural = math.ceil(width * wanted_height / height)
    width_max = wanted_width or min(int(number(spec, "width_max", WIDTH_MAX)), largest[1])
    filled = min(max(natural, 1), width_max)
    free = rounded_up(max(filled, int(number(spec, "width_min", 1))), image.multiple)
    size = wanted_width or _at_most(free, largest[1], image.multiple)
    filled = min(filled, size)
    return Placement((0.0, 0.0, float(width), float(height)), (filled, wanted_height), (size, wanted_height))


def _fill_free_sides(
    width: int,
    height: int,
    image: ImageSpec,
    wanted: tuple[int | None, int | None],
    spec: TaskSpec,
    largest: tuple[int, int],
) -> tuple[int, int]:
    wanted_height, wanted_width = wanted
    if wanted_height is not None and wanted_width is not None:
        return wanted_height, wanted_width
    side_max = number(spec, "side_max", 1280)
    scale = min(1.0, side_max / max(width, height), largest[0] / height, largest[1] / width)
    if wanted_height is not None:
        scale = wanted_height / height
    if wanted_width is not None:
        scale = wanted_width / width
    free_height = wanted_height or rounded_up(round(height * scale), image.multiple)
    free_width = wanted_width or rounded_up(round(width * scale), image.multiple)
    return (
        min(wanted_height or _at_most(free_height, largest[0], image.multiple), _INPUT_SIDE_MAX),
        min(wanted_width or _at_most(free_width, largest[1], image.multiple), _INPUT_SIDE_MAX),
    )


def _at_most(side: int, side_max: int, multiple: int) -> int:
    """The side, or the largest multiple within `side_max`; where none is, that."""
    return side if side <= side_max else side_max // multiple * multiple or side_max


def rounded_up(side: int, multiple: int) -> int:
    """The next multiple that is no smaller."""
    return max(1, math.ceil(side / multiple)) * multiple


def _side(value: float, side_max: int) -> int:
    return min(max(1, round(value)), side_max)


def read_pixels(body: bytes, header: ImageHeader, places: Sequence[Placement] | None = None) -> Pixels:
    """Upright pixels, alpha laid over white.

    With placements, all that will be made of it, a JPEG may come out smaller by 2, 4 or 8.

    Raises: BadMedia when the decoder gives up or the pixels are not as many as the header said.
    """
    cv2 = opencv()
    if header.format == PNG:
        body = essential_png(body)
    elif header.format == GIF:
        body = essential_gif(body)
    reduce = min(_reduction(header, place) for place in places) if places and header.format == JPEG else 1
    name = "IMREAD_COLOR" if reduce == 1 else f"IMREAD_REDUCED_COLOR_{reduce}"
    # The orientation is ours to apply: IMREAD_UNCHANGED, which keeps alpha, would not.
    flags = cv2.IMREAD_UNCHANGED if header.has_alpha else getattr(cv2, name) | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels = cv2.imdecode(np.frombuffer(body, np.uint8), flags)
    except cv2.error:
        pixels = None
    expected = (-(-header.height // reduce), -(-header.width // reduce))
    if pixels is None or pixels.shape[:2] != expected:
        raise BadMedia(reason=f"the {header.format} is damaged and cannot be decoded")
    is_missing = header.data_at is not None and lacks_its_rest(body, header.data_at, pixels, reduce)
    warnings = ("the JPEG is damaged: the lower part of the picture is missing",) if is_missing else ()
    return Pixels(_turn_upright(_to_bgr8(pixels), header.orientation), *upright_size(header), warnings)


def _reduction(header: ImageHeader, place: Placement) -> int:
    """The largest of 1, 2, 4, 8 that still leaves at least as many pixels as the tensor takes."""
    _, _, window_width, window_height = place.window
    if header.orientation >= 5:
        window_width, window_height = window_height, window_width
        filled_height, filled_width = place.filled
    else:
        filled_width, filled_height = place.filled
    shrink = min(window_width / filled_width, window_height / filled_height)
    return next(factor for factor in (8, 4, 2, 1) if shrink >= factor or factor == 1)


def _to_bgr8(pixels: np.ndarray) -> np.ndarray:
    cv2 = opencv()
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    if pixels.ndim == 2:
        return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR))
    return _over_white(pixels) if pixels.shape[2] == 4 else pixels


def _over_white(pixels: np.ndarray) -> np.ndarray:
    """Lay BGRA over white. Dropping alpha instead would turn dark writing on nothing into black on black."""
    out = np.empty((*pixels.shape[:2], 3), np.uint8)
    for top in range(0, len(pixels), 256):  # in bands, to keep the wider numbers small
        band = pixels[top : top + 256].astype(np.uint16)
        alpha = band[:, :, 3:]
        out[top : top + 256] = (band[:, :, :3] * alpha + 255 * (255 - alpha) + 127) // 255
    return out


def _turn_upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Undo the EXIF orientation: 5..8 are transposed; then 2, 7, 6, 3 are mirrored left-right and 4, 7, 8, 3 upside
    down.
    """
    if orientation >= 5:
        pixels = np.transpose(pixels, (1, 0, 2))
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def _cut_and_resize(pixels: np.ndarray, original: tuple[int, int], place: Placement) -> np.ndarray:
    """The window, resized: uint8[filled height, filled width, 3].

    `pixels` may be a reduced picture of `original` (width, height).
    """
    cv2 = opencv()
    ratio_x, ratio_y = pixels.shape[1] / original[0], pixels.shape[0] / original[1]
    x, y, width, height = place.window
    left, top = round(x * ratio_x), round(y * ratio_y)
    right, bottom = max(left + 1, round((x + width) * ratio_x)), max(top + 1, round((y + height) * ratio_y))
    window = pixels[top:bottom, left:right]
    if (window.shape[1], window.shape[0]) == place.filled:
        return window
    shrink = max(window.shape[1] / place.filled[0], window.shape[0] / place.filled[1])
    # Bilinear is what most networks were trained with; beyond a factor of two it skips pixels, so average instead.
    method = cv2.INTER_AREA if shrink >= 2 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(window, place.filled, interpolation=method))


def to_tensor(pixels: np.ndarray, image: ImageSpec, place: Placement, tensor: TensorSpec) -> np.ndarray:
    """BGR uint8 pixels → the tensor, padded below and right, normalised, in the input's layout, type and rank."""
    planes = _planes(pixels, image)
    width, height = place.size
    out = np.empty((len(planes), height, width), np.float32)
    filled_width, filled_height = place.filled
    for channel, plane in enumerate(planes):
        scale = np.float32(1.0 / image.std[channel % len(image.std)])
        shift = np.float32(image.mean[channel % len(image.mean)]) * scale
        area = out[channel, :filled_height, :filled_width]
        np.multiply(plane, scale, out=area)
        if shift:
            area -= shift
        if place.filled != place.size:
            padding = np.float32(image.pad_value) * scale - shift
            out[channel, filled_height:] = padding
            out[channel, :, filled_width:] = padding
    array = out if image.layout == "NCHW" else np.ascontiguousarray(np.transpose(out, (1, 2, 0)))
    dtype = dtype_of(tensor.datatype)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        np.clip(np.rint(array, out=array), bounds.min, bounds.max, out=array)
    array = array.astype(dtype, copy=False)
    return array[np.newaxis] if len(tensor.shape) == 4 else array


def _planes(pixels: np.ndarray, image: ImageSpec) -> list[np.ndarray]:
    cv2 = opencv()
    if image.channels == "GRAY":
        return [cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)]
    planes = list(cv2.split(pixels))
    return planes if image.channels == "BGR" else planes[::-1]
