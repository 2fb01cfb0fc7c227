"""Metadata: what a developer states is taken or refused with the key's name."""

import math
from typing import Any

import pytest

from appliance.domain.catalogue import ImageSpec, StateSpec, TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks.metadata import LABELS_MAX, labels_from_text, labels_of_props, parse_spec, plain_props

DETECTION = TaskKind.OBJECT_DETECTION


def test_metadata_can_state_every_field() -> None:
    spec = parse_spec(
        DETECTION,
        {
            "labels": ["a", "b"],
            "decoder": "yolov8",
            "image": {
                "layout": "NHWC",
                "channels": "BGR",
                "mean": [1, 2, 3],
                "std": 4,
                "resize": "letterbox",
                "height": 320,
                "width": None,
                "multiple": 32,
                "pad_value": 114,
            },
            "params": {"score_min": 0.3, "box_format": "yxyx"},
            "constants": {"sr": 8000},
            "state": [{"input": "h", "output": "hn", "shape": [2, -1, 64], "datatype": "FP16"}],
        },
    )
    assert spec == TaskSpec(
        DETECTION,
        ("a", "b"),
        ImageSpec("NHWC", "BGR", (1.0, 2.0, 3.0), (4.0,), "letterbox", 320, None, 32, 114.0),
        "yolov8",
        {"score_min": 0.3, "box_format": "yxyx"},
        (StateSpec("h", "hn", (2, -1, 64), "FP16"),),
        {"sr": 8000.0},
    )


def test_metadata_left_out_comes_from_the_base() -> None:
    """Field by field, and within image and params key by key."""
    base = TaskSpec(DETECTION, ("x",), ImageSpec(resize="crop", height=100), "ssd", {"score_min": 0.1, "iou_max": 0.2})
    spec = parse_spec(DETECTION, {"image": {"height": 200}, "params": {"iou_max": 0.9}}, base)
    assert (spec.labels, spec.decoder, spec.params) == (("x",), "ssd", {"score_min": 0.1, "iou_max": 0.9})
    assert spec.image == ImageSpec(resize="crop", height=200)
    assert parse_spec(DETECTION, {}, base) == base


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"0": "cat", "2": "dog"}, ("cat", "1", "dog")),
        ({1: "b", 0: "a"}, ("a", "b")),
        (["x", 7], ("x", "7")),
        ([], ()),
        ({}, ()),
    ],
)
def test_metadata_labels_are_read_from_list_or_mapping(value: Any, wanted: tuple[str, ...]) -> None:
    """A mapping is by index, gaps are numbers."""
    assert parse_spec(DETECTION, {"labels": value}).labels == wanted


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        ({"lables": []}, "'lables'"),
        ({"image": {"size": 3}}, "'image.size'"),
        ({"image": []}, "'image'"),
        ({"image": {"layout": "HWC"}}, "'image.layout'"),
        ({"image": {"channels": "rgb"}}, "'image.channels'"),
        ({"image": {"mean": [1, 2]}}, "'image.mean'"),
        ({"image": {"mean": "1"}}, "'image.mean'"),
        ({"image": {"std": 0}}, "'image.std'"),
        ({"image": {"std": math.nan}}, "'image.std'"),
        ({"image": {"height": 0}}, "'image.height'"),
        ({"image": {"width": 100_000}}, "'image.width'"),
        ({"image": {"multiple": 1.5}}, "'image.multiple'"),
        ({"image": {"pad_value": True}}, "'image.pad_value'"),
        ({"image": {"resize": ["crop"]}}, "'image.resize'"),
        ({"decoder": "db"}, "'db'"),
        ({"decoder": 3}, "3"),
        ({"params": {"score_min": None}}, "'params.score_min'"),
        ({"params": 1}, "'params'"),
        ({"constants": {"sr": "high"}}, "'constants.sr'"),
        ({"state": {}}, "'state'"),
        ({"state": [3]}, "'state'"),
        ({"state": [{"input": "h", "shape": [1]}]}, "'state.0.output'"),
        ({"state": [{"input": "h", "output": "g", "shape": "1"}]}, "'state.0.shape'"),
        ({"state": [{"input": "h", "output": "g", "shape": [1], "datatype": "float"}]}, "'state.0.datatype'"),
        ({"state": [{"input": "h", "output": "g", "shape": [1], "dtype": "FP32"}]}, "'state.0.dtype'"),
        ({"labels": "cat"}, "'labels'"),
        ({"labels": {"cat": 0}}, "'labels'"),
        ({"labels": {"-1": "cat"}}, "'labels'"),
        ({"labels": {"99999999": "cat"}}, "'labels'"),
        ({"labels": [["cat"]]}, "'labels'"),
    ],
)
def test_wrong_metadata_key_or_value_is_refused_by_name(metadata: dict[str, Any], key: str) -> None:
    with pytest.raises(BadMetadata) as raised:
        parse_spec(DETECTION, metadata)
    assert key in str(raised.value)


def test_unknown_metadata_key_is_told_with_all_keys_that_are_known() -> None:
    """Also those that an upload takes beside its task."""
    with pytest.raises(BadMetadata) as raised:
        parse_spec(DETECTION, {"precision": ["int8"]})
    assert str(raised.value).endswith(
        "known are application, constants, decoder, image, labels, name, params, precisions, shape_max, shared, state, "
        "task"
    )


def test_metadata_decoder_of_another_task_is_refused() -> None:
    """The message lists the decoders of the task."""
    assert parse_spec(TaskKind.TEXT_DETECTION, {"decoder": "db"}).decoder == "db"
    assert parse_spec(TaskKind.TENSOR, {"decoder": ""}).decoder == ""
    with pytest.raises(BadMetadata, match="softmax, sigmoid, probabilities"):
        parse_spec(TaskKind.IMAGE_CLASSIFICATION, {"decoder": "nanodet"})
    with pytest.raises(BadMetadata, match="has none"):
        parse_spec(TaskKind.TENSOR, {"decoder": "ctc"})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{0: 'person', 1: 'dog'}", ("person", "dog")),
        ('["a", "b"]', ("a", "b")),
        ("cat\ndog\n", ("cat", "dog")),
        ("just words", ()),
        ("{'a': 1}", ()),
        ("[" * 10_000, ()),
        ("3", ()),
        ('["caf\\u00e9", 3]', ("café", "3")),
        ('{"1": "dog"}', ("0", "dog")),
        ('["a", true]', ()),
        ("a\n" * LABELS_MAX, ("a",) * LABELS_MAX),
        ("a\n" * (LABELS_MAX + 1), ()),
        (str(["a"] * (LABELS_MAX + 1)).replace("'", '"'), ()),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_labels_written_by_exporters_are_read(text: str, wanted: tuple[str, ...]) -> None:
    """Python or JSON literals, lines, or nothing, and no more than a model may have."""
    assert labels_from_text(text) == wanted


def test_properties_of_a_file_are_handed_on_with_labels_as_json() -> None:
    """Nobody has to read Python's notation after the process that looked at the file."""
    props = {"names": "{0: 'person', 1: 'dog'}", "classes": "a,b,c", "labels": "cat\ndog", "stride": "[32]"}
    plain = plain_props(props)
    assert plain == props | {"names": '["person","dog"]', "labels": '["cat","dog"]'}
    assert labels_of_props(plain) == labels_of_props(props) == ("person", "dog")
