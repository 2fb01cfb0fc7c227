"""The tenant's JSON about a model → `TaskSpec`. Every wrong key or value is named, so that the developer can fix it."""

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

import orjson

from appliance.domain.catalogue import ImageSpec, StateSpec, TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks.datatypes import DTYPES
from appliance.tasks.detection_decoders import DECODERS

BESIDE = ("application", "name", "precisions", "shared", "task")
"""Keys of the metadata that are no part of the task: whoever reads these takes them out before."""
_SIDE_MAX = 8192
LABELS_MAX = 100_000
_LABEL_PROPS = ("names", "labels", "classes", "class_names")
"""Properties of an ONNX file that exporters write labels into."""
_RANK_MAX = 16
_LENGTH_MAX = 2**24
_DETECTORS = tuple(DECODERS)
_DECODERS_OF: Mapping[TaskKind, tuple[str, ...]] = {
    TaskKind.IMAGE_CLASSIFICATION: ("softmax", "sigmoid", "probabilities"),
    TaskKind.OBJECT_DETECTION: _DETECTORS,
    TaskKind.FACE_DETECTION: _DETECTORS,
    TaskKind.TEXT_DETECTION: ("db",),
    TaskKind.TEXT_RECOGNITION: ("ctc",),
}


def parse_spec(kind: TaskKind, metadata: Mapping[str, Any], base: TaskSpec | None = None) -> TaskSpec:
    """The spec that the metadata states; what it leaves out comes from `base` (for example an inferred spec).

    Raises: BadMetadata naming the key.
    """
    spec = replace(base or TaskSpec(), kind=kind)
    _check_keys(metadata, _PARSERS, "", BESIDE)
    changes = {key: parse(value, spec) for key, value in metadata.items() if (parse := _PARSERS[key]) is not None}
    return replace(spec, **changes)


def _check_keys(given: Mapping[str, Any], known: Mapping[str, Any], where: str, beside: Iterable[str] = ()) -> None:
    for key in given:
        if key not in known:
            names = ", ".join(sorted({*known, *beside}))
            raise BadMetadata(reason=f"unknown key {where + str(key)!r} in the metadata; known are {names}")


def _mapping(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise BadMetadata(reason=f"{key!r} must be a JSON object")
    return value


def parse_labels(value: Any) -> tuple[str, ...]:
    """Labels from a list, or from a mapping of index to label; an index that is left out is its number.

    Raises: BadMetadata.
    """
    if isinstance(value, Mapping):
        value = _labels_by_index(value)
    if not isinstance(value, list | tuple) or not all(_is_label(label) for label in value):
        raise BadMetadata(reason="'labels' must be a list of names or a mapping of index to name")
    if len(value) > LABELS_MAX:
        raise BadMetadata(reason=f"'labels' may have at most {LABELS_MAX} names")
    return tuple(str(label) for label in value)


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _labels_by_index(value: Mapping[Any, Any]) -> list[Any]:
    try:
        by_index = {int(index): label for index, label in value.items()}
    except (TypeError, ValueError):
        raise BadMetadata(reason='the keys of \'labels\' must be indices: {"0": "cat"}') from None
    if by_index and not 0 <= min(by_index) <= max(by_index) < LABELS_MAX:
        raise BadMetadata(reason=f"the indices of 'labels' must be within 0 and {LABELS_MAX - 1}")
    return [by_index.get(index, str(index)) for index in range(max(by_index, default=-1) + 1)]


def labels_from_text(text: str) -> tuple[str, ...]:
    """Labels as exporters write them into a graph: a Python or JSON list or mapping, or one per line; () for
    anything else. To read Python's notation of a hostile file may take minutes and gigabytes.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _literal(text)
    if isinstance(value, Mapping | list):
        try:
            return parse_labels(value)
        except BadMetadata:
            return ()
    return tuple(text.strip("\n").split("\n")) if 0 < text.count("\n") <= LABELS_MAX else ()


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def plain_props(props: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of an ONNX file, with labels as JSON: no other process needs to read Python's notation."""
    labels = {key: labels_from_text(props[key]) for key in _LABEL_PROPS if key in props}
    return {**props, **{key: orjson.dumps(found).decode() for key, found in labels.items() if found}}


def labels_of_props(props: Mapping[str, str]) -> tuple[str, ...]:
    """Return the labels that the properties of an ONNX file state; () where they state none."""
    return next((found for key in _LABEL_PROPS if (found := labels_from_text(props.get(key, "")))), ())


def _parse_labels(value: Any, spec: TaskSpec) -> tuple[str, ...]:
    return parse_labels(value)


def _parse_decoder(value: Any, spec: TaskSpec) -> str:
    known = _DECODERS_OF.get(spec.kind, ())
    if value != "" and value not in known:
        choice = f"use one of {', '.join(known)}" if known else "this task has none"
        raise BadMetadata(reason=f"unknown decoder {value!r} for {spec.kind}: {choice}")
    return str(value)


def _parse_image(value: Any, spec: TaskSpec) -> ImageSpec:
    given = _mapping(value, "image")
    known = {field.name: field for field in fields(ImageSpec)}
    _check_keys(given, known, "image.")
    image = spec.image or ImageSpec()
    return replace(image, **{key: _IMAGE_PARSERS[key](entry, f"image.{key}") for key, entry in given.items()})


def _one_of(*words: str) -> Callable[[Any, str], str]:
    def parse(value: Any, key: str) -> str:
        if value not in words:
            raise BadMetadata(reason=f"{key!r} must be one of {', '.join(words)}, not {value!r}")
        return str(value)

    return parse


def _whole(low: int, high: int) -> Callable[[Any, str], int]:
    def parse(value: Any, key: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadMetadata(reason=f"{key!r} must be a whole number from {low} to {high}, not {value!r}")
        return value

    return parse


def _side(value: Any, key: str) -> int | None:
    return None if value is None else _whole(1, _SIDE_MAX)(value, key)


def _real(value: Any, key: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise BadMetadata(reason=f"{key!r} must be a number, not {value!r}")
    return float(value)


def _per_channel(value: Any, key: str) -> tuple[float, ...]:
    entries = value if isinstance(value, list | tuple) else [value]
    if len(entries) not in (1, 3):
        raise BadMetadata(reason=f"{key!r} must be one number or three, one for each channel")
    return tuple(_real(entry, key) for entry in entries)


def _divisors(value: Any, key: str) -> tuple[float, ...]:
    numbers = _per_channel(value, key)
    if any(number <= 0 for number in numbers):
        raise BadMetadata(reason=f"{key!r} must be above 0")
    return numbers


_IMAGE_PARSERS: Mapping[str, Callable[[Any, str], Any]] = {
    "layout": _one_of("NCHW", "NHWC"),
    "channels": _one_of("RGB", "BGR", "GRAY"),
    "mean": _per_channel,
    "std": _divisors,
    "resize": _one_of("stretch", "letterbox", "crop", "keep-height"),
    "height": _side,
    "width": _side,
    "multiple": _whole(1, 1024),
    "pad_value": _real,
}


def _parse_params(value: Any, spec: TaskSpec) -> Mapping[str, float | str]:
    params: dict[str, float | str] = dict(spec.params)
    for key, entry in _mapping(value, "params").items():
        params[key] = entry if isinstance(entry, str) else _real(entry, f"params.{key}")
    return params


def _parse_constants(value: Any, spec: TaskSpec) -> Mapping[str, float]:
    return {key: _real(entry, f"constants.{key}") for key, entry in _mapping(value, "constants").items()}


def _parse_state(value: Any, spec: TaskSpec) -> tuple[StateSpec, ...]:
    if not isinstance(value, list):
        raise BadMetadata(reason="'state' must be a list of {input, output, shape}")
    return tuple(_parse_pair(_mapping(entry, "state"), f"state.{at}.") for at, entry in enumerate(value))


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= 2**24


def _parse_pair(given: Mapping[str, Any], where: str) -> StateSpec:
    _check_keys(given, {field.name: field for field in fields(StateSpec)}, where)
    for key in ("input", "output"):
        if not isinstance(given.get(key), str):
            raise BadMetadata(reason=f"{where + key!r} must be the name of a tensor")
    shape = given.get("shape")
    if not isinstance(shape, list) or not all(_is_side(side) for side in shape):
        raise BadMetadata(reason=f"{where + 'shape'!r} must be a list of whole numbers")
    datatype = _one_of(*DTYPES)(given.get("datatype", "FP32"), where + "datatype")
    return StateSpec(given["input"], given["output"], tuple(shape), datatype)


def _parse_shape_max(value: Any, spec: TaskSpec) -> Mapping[str, tuple[int | None, ...]]:
    """{input: [null, 3, 640, 640]}; null = as large as the box chooses."""
    return {name: _parse_largest(shape, f"shape_max.{name}") for name, shape in _mapping(value, "shape_max").items()}


def _parse_largest(shape: Any, key: str) -> tuple[int | None, ...]:
    if not isinstance(shape, list | tuple) or len(shape) > _RANK_MAX:
        raise BadMetadata(reason=f"{key!r} must be a list of whole numbers, null where the box may choose")
    return tuple(None if side is None else _whole(1, _LENGTH_MAX)(side, key) for side in shape)


_PARSERS: Mapping[str, Callable[[Any, TaskSpec], Any]] = {
    "labels": _parse_labels,
    "decoder": _parse_decoder,
    "image": _parse_image,
    "params": _parse_params,
    "constants": _parse_constants,
    "state": _parse_state,
    "shape_max": _parse_shape_max,
}
