"""Guesses from graphs: the shapes and names that known networks really have."""

import pytest

from appliance.domain.catalogue import StateSpec, TaskKind, TaskSpec, TensorSpec
from appliance.tasks.defaults import infer_spec
from tests.present import present


def tensors(*given: tuple[str, tuple[int, ...]], datatype: str = "FP32") -> list[TensorSpec]:
    return [TensorSpec(name, datatype, shape) for name, shape in given]


def guess(kind: TaskKind, inputs: list[TensorSpec], outputs: list[TensorSpec], **props: str) -> TaskSpec:
    return infer_spec(kind, inputs, outputs, props)


PICTURE = tensors(("x", (-1, 3, -1, -1)))


@pytest.mark.parametrize(
    ("shape", "layout", "channels", "size"),
    [
        ((1, 3, 192, 256), "NCHW", "RGB", (192, 256)),
        ((-1, 160, 128, 3), "NHWC", "RGB", (160, 128)),
        ((1, 1, 28, 28), "NCHW", "GRAY", (28, 28)),
        ((1, 28, 28, 1), "NHWC", "GRAY", (28, 28)),
        ((-1, 3, -1, -1), "NCHW", "RGB", (224, 224)),
        ((-1, -1, -1, 3), "NHWC", "RGB", (224, 224)),
    ],
    ids=str,
)
def test_picture_layout_channels_and_size_are_guessed_from_the_shape(
    shape: tuple[int, ...], layout: str, channels: str, size: tuple[int, int]
) -> None:
    """By where the few channels are; a free size becomes the usual one."""
    image = present(guess(TaskKind.IMAGE_CLASSIFICATION, tensors(("x", shape)), tensors(("y", (1, 10)))).image)
    assert (image.layout, image.channels, (image.height, image.width)) == (layout, channels, size)
    assert len(image.mean) == (1 if channels == "GRAY" else 3)


def test_guessed_spec_of_byte_input_does_not_normalise() -> None:
    """A graph whose input is quantised normalises by itself."""
    image = present(guess(TaskKind.IMAGE_CLASSIFICATION, tensors(("x", (1, 224, 224, 3)), datatype="UINT8"), []).image)
    assert (image.mean, image.std) == ((0.0,), (1.0,))


FACES = tensors(("537", (-1, 1, -1, -1)), ("538", (-1, 2, -1, -1)), ("539", (-1, 2, -1, -1)), ("540", (-1, 10, -1, -1)))
BLAZE = tensors(("a", (1, 512, 1)), ("b", (1, 384, 1)), ("c", (1, 512, 16)), ("d", (1, 384, 16)))
NANODET = tensors(*((f"o{at}", (-1, -1, channels)) for at, channels in enumerate((80, 44, 80, 44, 80, 44))))
TF_ZOO = tensors(("detection_boxes", (1, 100, 4)), ("detection_scores", (1, 100)), ("detection_classes", (1, 100)))
ULTRA = tensors(("scores", (1, 4420, 2)), ("boxes", (1, 4420, 4)))


@pytest.mark.parametrize(
    ("kind", "outputs", "decoder", "params"),
    [
        (TaskKind.FACE_DETECTION, FACES, "centerface", {}),
        (TaskKind.FACE_DETECTION, BLAZE, "blazeface", {}),
        (TaskKind.FACE_DETECTION, ULTRA, "ssd", {"background": 0.0}),
        (TaskKind.OBJECT_DETECTION, NANODET, "nanodet", {"distance_bins": 11.0}),
        (TaskKind.OBJECT_DETECTION, tensors(("o", (1, 3598, 112))), "nanodet", {}),
        (TaskKind.OBJECT_DETECTION, tensors(("output0", (1, 84, 8400))), "yolov8", {}),
        (TaskKind.OBJECT_DETECTION, tensors(("output0", (1, 25200, 85))), "yolov5", {}),
        (TaskKind.OBJECT_DETECTION, tensors(("output0", (1, 300, 6))), "end2end", {}),
        (TaskKind.OBJECT_DETECTION, TF_ZOO, "ssd", {"box_format": "yxyx"}),
        (TaskKind.TEXT_DETECTION, tensors(("maps", (-1, 1, -1, -1))), "db", {}),
        (TaskKind.TEXT_RECOGNITION, tensors(("y", (-1, -1, 97))), "ctc", {}),
        (TaskKind.IMAGE_CLASSIFICATION, tensors(("y", (-1, 1000))), "", {}),
    ],
)
def test_decoder_is_guessed_from_output_shapes_and_names(
    kind: TaskKind, outputs: list[TensorSpec], decoder: str, params: dict[str, object]
) -> None:
    spec = guess(kind, PICTURE, outputs)
    assert (spec.kind, spec.decoder, dict(spec.params)) == (kind, decoder, params)


@pytest.mark.parametrize("classes", [4, 5, 6])
def test_text_dictionary_in_graph_is_completed_to_output_classes(classes: int) -> None:
    """With or without blank and space."""
    spec = guess(TaskKind.TEXT_RECOGNITION, PICTURE, tensors(("y", (-1, -1, classes))), character="a\nb\nc\nd")
    assert (
        spec.labels == {4: ("a", "b", "c", "d"), 5: ("", "a", "b", "c", "d"), 6: ("", "a", "b", "c", "d", " ")}[classes]
    )


def test_labels_in_graph_metadata_are_taken() -> None:
    """As the usual exporters write them."""
    spec = guess(
        TaskKind.OBJECT_DETECTION, PICTURE, tensors(("o", (1, 6, 8400))), names="{0: 'person', 1: 'dog'}", date="today"
    )
    assert spec.labels == ("person", "dog")


@pytest.mark.parametrize(
    ("inputs", "outputs", "state"),
    [
        (
            [*tensors(("input", (-1, -1)), ("state", (2, -1, 128))), TensorSpec("sr", "INT64", ())],
            tensors(("output", (-1, 1)), ("stateN", (-1, -1, -1))),
            (StateSpec("state", "stateN", (2, 1, 128)),),
        ),
        (
            tensors(("input", (-1, 576)), ("h", (1, 1, 128)), ("c", (1, 1, 128))),
            tensors(("speech_probs", (-1,)), ("hn", (1, 1, 128)), ("cn", (1, 1, 128))),
            (StateSpec("h", "hn", (1, 1, 128)), StateSpec("c", "cn", (1, 1, 128))),
        ),
    ],
)
def test_states_and_rate_of_speech_models_are_guessed(
    inputs: list[TensorSpec], outputs: list[TensorSpec], state: tuple[StateSpec, ...]
) -> None:
    """Silero in both of its forms."""
    spec = guess(TaskKind.VOICE_ACTIVITY, inputs, outputs)
    assert spec.state == state
    assert spec.constants == ({"sr": 16_000.0} if any(tensor.name == "sr" for tensor in inputs) else {})
    assert spec.params["sample_rate_hz"] == 16_000


def test_model_state_is_not_guessed_when_shapes_contradict() -> None:
    """A name alone is not enough."""
    spec = guess(TaskKind.TENSOR, tensors(("state", (2, 4))), tensors(("stateN", (2, 5)), ("y", (2, 4))))
    assert spec.state == ()
