"""What a graph tells of itself when its tenant says little: layout, size, normalisation, decoder, dictionary and
states, guessed from shapes and names.

A guess is only a start: `parse_spec(kind, metadata, base=infer_spec(...))` lets the tenant's words win.
"""

from collections.abc import Mapping, Sequence

from appliance.domain.catalogue import ImageSpec, StateSpec, TaskKind, TaskSpec, TensorSpec
from appliance.tasks.metadata import LABELS_MAX, labels_of_props, parse_spec

__all__ = ["infer_spec", "parse_spec"]

_IMAGENET_MEAN = (123.675, 116.28, 103.53)
_IMAGENET_STD = (58.395, 57.12, 57.375)
_PICTURE_TASKS = {
    TaskKind.IMAGE_CLASSIFICATION,
    TaskKind.OBJECT_DETECTION,
    TaskKind.FACE_DETECTION,
    TaskKind.TEXT_DETECTION,
    TaskKind.TEXT_RECOGNITION,
    TaskKind.IMAGE_EMBEDDING,
}
_STATE_NAMES = ("state", "h", "c", "h0", "c0", "hidden", "hidden_state", "cell", "cell_state")
_RATE_NAMES = ("sr", "sample_rate", "sampling_rate")


def infer_spec(
    kind: TaskKind,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    metadata_props: Mapping[str, str] | None = None,
) -> TaskSpec:
    """The likeliest spec of a graph.

    `metadata_props` are those of the ONNX file (`character`, `names` ... are understood).
    """
    props = metadata_props or {}
    constants = _constants(inputs) if kind is TaskKind.VOICE_ACTIVITY else {}
    state = _states(inputs, outputs) if kind in (TaskKind.VOICE_ACTIVITY, TaskKind.TENSOR) else ()
    decoder = _decoder(kind, outputs)
    image = _image(kind, decoder, inputs) if kind in _PICTURE_TASKS else None
    params: dict[str, float | str] = {"sample_rate_hz": 16_000.0} if kind is TaskKind.VOICE_ACTIVITY else {}
    if decoder == "nanodet":
        params |= _distance_bins(outputs)
    if decoder == "ssd":
        params |= _ssd_params(kind, outputs)
    return TaskSpec(kind, _labels(kind, outputs, props), image, decoder, params, state, constants)


# -- pictures ----------------------------------------------------------------------------------------------------------


def _image(kind: TaskKind, decoder: str, inputs: Sequence[TensorSpec]) -> ImageSpec:
    tensor = next((tensor for tensor in inputs if len(tensor.shape) in (3, 4)), None)
    shape = tensor.shape[-3:] if tensor is not None else (3, -1, -1)
    layout = "NHWC" if shape[2] in (1, 3) and shape[0] not in (1, 3) else "NCHW"
    is_grey = (shape[2] if layout == "NHWC" else shape[0]) == 1
    image = _habits(kind, decoder)
    channels = "GRAY" if is_grey else image.channels
    mean, std = (image.mean, image.std) if not is_grey or len(image.mean) == 1 else ((0.0,), (255.0,))
    if tensor is not None and tensor.datatype == "UINT8":  # quantised to the input: takes pixels as they are
        mean, std = (0.0,), (1.0,)
    height, width = (shape[0], shape[1]) if layout == "NHWC" else (shape[1], shape[2])
    return ImageSpec(
        layout,
        channels,
        mean,
        std,
        image.resize,
        height if height > 0 else image.height,
        width if width > 0 else image.width,
        image.multiple,
        image.pad_value,
    )


def _habits(kind: TaskKind, decoder: str) -> ImageSpec:
    """How networks of this kind are usually fed."""
    if decoder == "nanodet":
        return ImageSpec(mean=_IMAGENET_MEAN, std=_IMAGENET_STD, height=416, width=416, multiple=32)
    if decoder == "centerface":
        return ImageSpec(std=(1.0,), resize="letterbox", height=480, width=640, multiple=32)
    if decoder == "blazeface":
        return ImageSpec(mean=(127.5,), std=(127.5,), resize="letterbox", pad_value=127.5)
    if kind is TaskKind.TEXT_DETECTION:
        return ImageSpec(channels="BGR", mean=(127.5,), std=(127.5,), resize="letterbox", multiple=32, pad_value=127.5)
    if kind is TaskKind.TEXT_RECOGNITION:
        return ImageSpec(
            channels="BGR", mean=(127.5,), std=(127.5,), resize="keep-height", height=48, multiple=8, pad_value=127.5
        )
    if kind in (TaskKind.OBJECT_DETECTION, TaskKind.FACE_DETECTION):
        return ImageSpec(resize="letterbox", height=640, width=640, multiple=32, pad_value=114.0)
    resize = "crop" if kind is TaskKind.IMAGE_CLASSIFICATION else "stretch"
    return ImageSpec(mean=_IMAGENET_MEAN, std=_IMAGENET_STD, resize=resize, height=224, width=224)


# -- outputs -----------------------------------------------------------------------------------------------------------


def _decoder(kind: TaskKind, outputs: Sequence[TensorSpec]) -> str:
    if kind is TaskKind.TEXT_DETECTION:
        return "db"
    if kind is TaskKind.TEXT_RECOGNITION:
        return "ctc"
    if kind in (TaskKind.OBJECT_DETECTION, TaskKind.FACE_DETECTION):
        return _detector(kind, [tensor.shape for tensor in outputs], [tensor.name.lower() for tensor in outputs])
    return ""


def _detector(kind: TaskKind, shapes: Sequence[tuple[int, ...]], names: Sequence[str]) -> str:
    channels = sorted(shape[1] for shape in shapes if len(shape) == 4)
    if channels == [1, 2, 2, 10]:
        return "centerface"
    if {512, 384} <= {shape[-2] for shape in shapes if len(shape) >= 2} and {shape[-1] for shape in shapes} == {1, 16}:
        return "blazeface"
    if any("box" in name or "loc" in name for name in names) and len(shapes) > 1:
        return "ssd"
    if len(shapes) == 1:
        last = shapes[0][-1] if shapes[0] else 0
        if last in (6, 7):
            return "end2end"
        # COCO: 80 classes with 4 x 8 distances, or with a box and its objectness
        return {112: "nanodet", 85: "yolov5"}.get(last, "yolov8")
    if len(shapes) >= 6 and len(shapes) % 2 == 0:
        return "nanodet"
    return "centerface" if kind is TaskKind.FACE_DETECTION and len(shapes) == 4 else "ssd"


def _distance_bins(outputs: Sequence[TensorSpec]) -> dict[str, float | str]:
    """Bins per side of NanoDet's distance heads: the channel count, shared by several outputs, that is 4 x (8 or 11
    or 17).
    """
    last = [shape[-1] for shape in (tensor.shape for tensor in outputs) if shape]
    for bins in (11, 8, 17):
        if last.count(4 * bins) * 2 == len(last):
            return {"distance_bins": float(bins)}
    return {}


def _ssd_params(kind: TaskKind, outputs: Sequence[TensorSpec]) -> dict[str, float | str]:
    """TensorFlow's detection zoo puts y first; face networks with two classes mean "no face" by the first."""
    params: dict[str, float | str] = {}
    if any("detection_boxes" in tensor.name.lower() for tensor in outputs):
        params["box_format"] = "yxyx"
    if kind is TaskKind.FACE_DETECTION and any(tensor.shape[-1:] == (2,) for tensor in outputs):
        params["background"] = 0.0
    return params


def _labels(kind: TaskKind, outputs: Sequence[TensorSpec], props: Mapping[str, str]) -> tuple[str, ...]:
    if kind is TaskKind.TEXT_RECOGNITION and "character" in props:
        classes = next((tensor.shape[-1] for tensor in outputs if len(tensor.shape) == 3), -1)
        return _dictionary(props["character"], classes)
    return labels_of_props(props)


def _dictionary(text: str, classes: int) -> tuple[str, ...]:
    """PP-OCR's: one character per line, without the blank (class 0) and, mostly, without the space (the last class)."""
    if text.count("\n") > LABELS_MAX:
        return ()
    lines = text.split("\n")
    if classes - len(lines) not in (0, 1, 2) and len(text.splitlines()) != len(lines):
        lines = text.splitlines()
    missing = classes - len(lines)
    if missing == 2:
        return ("", *lines, " ")
    if missing == 1:
        return ("", *lines)
    return tuple(lines)


# -- sound and sequences -----------------------------------------------------------------------------------------------


def _constants(inputs: Sequence[TensorSpec]) -> dict[str, float]:
    return {tensor.name: 16_000.0 for tensor in inputs if tensor.name.lower() in _RATE_NAMES}


def _states(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> tuple[StateSpec, ...]:
    """Inputs called like a state, each with the output whose name begins or ends with theirs (state → stateN, h →
    hn, cache → cache_out).
    """
    pairs = []
    taken: set[str] = set()
    for tensor in inputs:
        name = tensor.name.lower()
        if name not in _STATE_NAMES and not name.startswith(("state", "cache", "past")):
            continue
        output = next((out.name for out in outputs if out.name not in taken and _continues(name, out, tensor)), None)
        if output is not None:
            taken.add(output)
            pairs.append(StateSpec(tensor.name, output, tuple(max(side, 1) for side in tensor.shape), tensor.datatype))
    return tuple(pairs)


def _continues(name: str, output: TensorSpec, tensor: TensorSpec) -> bool:
    out = output.name.lower()
    is_named = out in (
        name + "n",
        name + "_n",
        name + "_out",
        "new_" + name,
        "next_" + name,
        "out_" + name,
        name.rstrip("0") + "n",
    )
    return is_named and _may_equal(output.shape, tensor.shape) and output.datatype == tensor.datatype


def _may_equal(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a == b or min(a, b) < 0 for a, b in zip(one, other, strict=True))
