"""Regions of answers: which are wanted, where they lie in the original, and what is cut out of it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import ImageSpec, TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia
from appliance.domain.pipeline import Region, Where
from appliance.tasks import TASKS
from appliance.tasks.base import Media, Pixels, Target
from appliance.tasks.image import read_picture
from appliance.tasks.regions import cut, placed, regions_in, size_of, wanted
from tests.tasks import pictures

PICTURE = (200, 100)


def box(left: float, top: float, right: float, bottom: float, score: float = 1.0, label: str = "") -> Region:
    return Region(((left, top), (right, top), (right, bottom), (left, bottom)), True, score, label)


def turned(centre: tuple[float, float], size: tuple[float, float], degrees: float) -> Region:
    """A quad, turned clockwise about its centre."""
    turn = math.radians(degrees)
    across, down = np.array([math.cos(turn), math.sin(turn)]), np.array([-math.sin(turn), math.cos(turn)])
    halves = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    corners = [np.array(centre) + across * x * size[0] / 2 + down * y * size[1] / 2 for x, y in halves]
    return Region(tuple((float(x), float(y)) for x, y in corners), False)


def noise(width: int, height: int) -> Pixels:
    return Pixels(np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8), width, height)


def smooth(width: int, height: int) -> Pixels:
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    planes = [x * 200 / width, y * 200 / height, (x + y) * 100 / (width + height)]
    return Pixels(np.stack(planes, axis=2).astype(np.uint8), width, height)


def test_regions_and_objects_of_answers_are_read() -> None:
    body = {
        "regions": [{"score": 0.7, "quad": [[0, 1], [9, 1], [9, 4], [0, 4]]}],
        "objects": [{"label": "car", "score": 0.9, "box": [1.0, 2.0, 3.0, 5.0]}],
    }
    assert regions_in(body, "regions") == [Region(((0, 1), (9, 1), (9, 4), (0, 4)), False, 0.7)]
    assert regions_in(body, "objects") == [box(1, 2, 3, 5, 0.9, "car")]
    assert regions_in(body, "faces") == []


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (Where(), "abcd"),
        (Where(score_min=0.5), "abc"),
        (Where(labels=("car", "bus")), "ab"),
        (Where(labels_not=("car",)), "bcd"),
        (Where(size_min=0.02), "ad"),
        (Where(score_min=0.6, labels_not=("bus",), size_min=0.001), "ac"),
    ],
)
def test_crop_takes_only_regions_that_match_the_filter(where: Where, left: str) -> None:
    """By score, label and share of the picture; a region without an inside never."""
    found = {
        "a": box(0, 0, 40, 10, 0.9, "car"),
        "b": box(0, 0, 10, 10, 0.5, "bus"),
        "c": box(0, 0, 10, 20, 0.6, "dog"),
        "d": box(0, 0, 100, 50, 0.4, "dog"),
        "flat": box(5, 5, 5, 9, 1.0, "car"),
    }
    chosen = wanted(list(found.values()), where, PICTURE, 64)
    assert "".join(name for name, one in found.items() if one in chosen) == left


def test_crop_of_too_many_regions_keeps_the_best_in_order() -> None:
    scores = [0.2, 0.9, 0.5, 0.9, 0.7]
    regions = [box(at, 0, at + 2, 2, score) for at, score in enumerate(scores)]
    assert [regions.index(one) for one in wanted(regions, Where(), PICTURE, 3)] == [1, 3, 4]


def test_crop_of_box_is_a_view_of_the_picture() -> None:
    picture = noise(30, 20)
    found = cut(picture, box(2.2, 3.0, 9.5, 11.0))
    assert (found.array == picture.array[3:11, 2:10]).all()
    assert (found.width, found.height) == (8, 8)
    assert found.array.base is not None


def test_crop_of_upright_quad_equals_the_crop_of_its_box() -> None:
    """A pixel is where its middle is: nothing is moved by half of one."""
    picture = noise(60, 40)
    region = Region(((5, 7), (25, 7), (25, 19), (5, 19)), False)
    assert (cut(picture, region).array == picture.array[7:19, 5:25]).all()


@pytest.mark.parametrize("degrees", [-20, 7, 33])
def test_crop_of_turned_quad_is_upright(degrees: float) -> None:
    """Each of the crop's pixels is what the picture has at the place where it lies."""
    picture, region = smooth(300, 200), turned((150, 100), (80, 24), degrees)
    found = cut(picture, region)
    assert (found.width, found.height) == (80, 24)
    for x, y in [(0, 0), (79, 0), (40, 12), (10, 23), (79, 23)]:
        ((px, py),) = placed(box(x + 0.5, y + 0.5, x + 0.5, y + 0.5), region).corners[:1]
        there = picture.array[int(py), int(px)].astype(int)
        assert np.abs(found.array[y, x].astype(int) - there).max() <= 2


def test_crop_of_region_outside_the_picture_is_refused() -> None:
    picture = noise(30, 20)
    crossed = Region(((0, 0), (30, 20), (0, 20), (30, 0)), False)
    for region in (box(40, 5, 50, 9), turned((500, 500), (10, 5), 10)):
        with pytest.raises(BadMedia, match="outside"):
            cut(picture, region)
    with pytest.raises(BadMedia, match="larger"):
        cut(Pixels(picture.array[:2], 30, 2), crossed)


@given(
    st.floats(-40, 40),
    st.tuples(st.floats(2, 60), st.floats(2, 20)),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_region_in_a_crop_maps_to_its_place_in_the_original(
    degrees: float, size: tuple[float, float], share: tuple[float, float]
) -> None:
    """Shares of the crop's sides are shares of the quad's sides."""
    region = turned((150, 100), size, degrees)
    width, height = size_of(region)
    x, y = share[0] * width, share[1] * height
    found = placed(box(x, y, x, y), region).corners[0]
    first, second, _, fourth = (np.array(corner) for corner in region.corners)
    assert np.allclose(found, first + share[0] * (second - first) + share[1] * (fourth - first), atol=1e-3)


def test_box_in_a_cropped_box_stays_a_box() -> None:
    outer = box(10.4, 20.6, 60, 70)
    assert placed(box(1, 2, 3, 5, 0.5, "x"), outer) == box(11, 22, 13, 25, 0.5, "x")
    assert placed(outer, None) is outer


_RGB = (TensorSpec("x", "FP32", (1, 3, 48, -1)),)


def _specs() -> list[tuple[TaskKind, TaskSpec, Target]]:
    image = ImageSpec(mean=(127.5,), std=(127.5,), resize="keep-height", multiple=8)
    free = Target(_RGB, (), height=48)
    fixed = Target((TensorSpec("x", "FP32", (1, 3, 32, 32)),), ())
    return [
        (TaskKind.TEXT_RECOGNITION, TaskSpec(TaskKind.TEXT_RECOGNITION, image=image), free),
        (TaskKind.IMAGE_CLASSIFICATION, TaskSpec(image=ImageSpec(resize="crop")), fixed),
        (TaskKind.OBJECT_DETECTION, TaskSpec(image=ImageSpec(resize="letterbox")), fixed),
        (TaskKind.IMAGE_EMBEDDING, TaskSpec(image=ImageSpec()), fixed),
    ]


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("region", [box(13.4, 20, 171.5, 61.9), turned((150, 100), (180, 40), -11)])
def test_crop_gives_the_same_tensor_as_its_png(at: int, region: Region) -> None:
    """To the bit: a pipeline answers what a client is answered that sends the same crop."""
    kind, spec, target = _specs()[at]
    picture = read_picture(pictures.encoded(smooth(300, 200).array + 0))
    crop = cut(picture, region)
    mine = TASKS[kind].decode(Media(b"", pixels=crop), spec, target, {})
    theirs = TASKS[kind].decode(Media(pictures.encoded(crop.array)), spec, target, {})
    assert mine.context == theirs.context
    assert (mine.steps[0]["x"] == theirs.steps[0]["x"]).all()


def test_jpeg_is_decoded_as_small_as_all_consumers_allow() -> None:
    jpeg = pictures.encoded(smooth(800, 640).array, ".jpg")
    small = (TaskSpec(image=ImageSpec()), Target((TensorSpec("x", "FP32", (1, 3, 64, 64)),), ()))
    large = (TaskSpec(image=ImageSpec()), Target((TensorSpec("x", "FP32", (1, 3, 300, 300)),), ()))
    sizes = [read_picture(jpeg, wanted).array.shape[:2] for wanted in ([small], [small, large], None)]
    assert sizes == [(80, 100), (320, 400), (640, 800)]
    whole = read_picture(jpeg, [small])
    assert (whole.width, whole.height) == (800, 640)
    reduced = TASKS[TaskKind.OBJECT_DETECTION].decode(Media(b"", pixels=whole), *small, {})
    alone = TASKS[TaskKind.OBJECT_DETECTION].decode(Media(jpeg), *small, {})
    assert reduced.context == alone.context
    assert (reduced.steps[0]["x"] == alone.steps[0]["x"]).all()


@given(
    st.tuples(*[st.tuples(st.integers(0, 30), st.integers(0, 20))] * 4),
    st.tuples(*[st.tuples(st.floats(0, 40), st.floats(0, 40))] * 4),
)
def test_crop_of_random_region_succeeds_or_is_refused(
    outer: tuple[tuple[float, float], ...], inner: tuple[tuple[float, float], ...]
) -> None:
    """Corners on a line, equal corners, sides that cross: of a picture, and of a crop."""
    picture = noise(30, 20)
    first = Region(outer, False)
    for region in (first, placed(Region(inner, False), first)):
        try:
            found = cut(picture, region)
        except BadMedia:
            continue
        assert found.array.shape == (found.height, found.width, 3)
        assert found.array.size > 0
