"""Graph, archive and uploader each correct the one before."""

from dataclasses import replace

import pytest

from appliance.domain.catalogue import ImageSpec, Precision, TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMetadata
from appliance.domain.jobs import ImportRequest
from appliance.modelstore.importing.metadata import settled_precisions, settled_task, stated_task
from appliance.modelstore.orders import Inspection, Unpacked

INSPECTION = Inspection(
    model="",
    files=(),
    size_bytes=0,
    inputs=(TensorSpec("image", "FP32", (-1, 3, 96, 96)),),
    outputs=(TensorSpec("scores", "FP32", (-1, 2)),),
    axes={},
    opset=17,
    opset_uploaded=17,
    ir_uploaded=8,
    ops={},
    family="convolution",
    weights="fp32",
    weights_bytes=0,
    parameters=0,
    metadata_props={"names": "{0: 'graph0', 1: 'graph1'}"},
    batch_max=8,
)


def request(kind: TaskKind = TaskKind.IMAGE_CLASSIFICATION, **metadata: object) -> ImportRequest:
    return ImportRequest("t", "m", "", task=TaskSpec(kind), metadata=metadata)


def unpacked(lines: tuple[str, ...] = (), **metadata: object) -> Unpacked:
    return Unpacked(model="", metadata=metadata, labels=lines)


def test_metadata_missing_in_upload_comes_from_graph() -> None:
    """Layout, size and labels come from the graph when neither archive nor uploader names them."""
    task = settled_task(request(), unpacked(), INSPECTION)
    assert task.image is not None
    assert (task.image.layout, task.image.height, task.image.width) == ("NCHW", 96, 96)
    assert task.labels == ("graph0", "graph1")


def test_metadata_of_form_overrides_archive_and_archive_overrides_graph() -> None:
    """labels.txt beats the graph, metadata.json beats labels.txt, the form beats all; keys that a later source leaves
    out stay.
    """
    assert settled_task(request(), unpacked(("a", "b")), INSPECTION).labels == ("a", "b")
    archive = unpacked(("a", "b"), labels=["c", "d"], image={"mean": [1], "std": [2]}, name="other", license="")
    with pytest.raises(BadMetadata, match="license"):
        settled_task(request(), archive, INSPECTION)
    archive = unpacked(("a", "b"), labels=["c", "d"], preprocessing={"mean": [1], "std": [2]}, name="other")
    task = settled_task(request(labels=["e", "f"], image={"mean": [9]}), archive, INSPECTION)
    assert task.labels == ("e", "f")
    assert task.image is not None
    assert (task.image.mean, task.image.std, task.image.height) == ((9.0,), (2.0,), 96)


def test_metadata_stated_as_default_overrides_graph() -> None:
    """An uploader who says the plain default means it, whatever the graph suggests."""
    guessed = settled_task(request(), unpacked(), INSPECTION)
    said = settled_task(request(image={"mean": [0], "std": [255]}), unpacked(), INSPECTION)
    assert guessed.image is not None
    assert said.image is not None
    assert guessed.image.mean != (0.0,)
    assert (said.image.mean, said.image.std) == ((0.0,), (255.0,))


def test_task_given_as_value_counts_where_different_from_default() -> None:
    """A caller within the program states the task as a value."""
    stated = TaskSpec(TaskKind.IMAGE_CLASSIFICATION, image=ImageSpec(mean=(7.0,)))
    task = settled_task(ImportRequest("t", "m", "", task=stated), unpacked(("a",)), INSPECTION)
    assert (task.image, task.labels) == (stated.image, ("a",))


def test_task_kind_comes_from_uploader_unless_left_open() -> None:
    """The archive's task counts for an upload that named none; nonsense is refused."""
    assert stated_task(request(TaskKind.TENSOR), unpacked(task="text-embedding")).kind is TaskKind.TEXT_EMBEDDING
    assert stated_task(request(), unpacked(task="text-embedding")).kind is TaskKind.IMAGE_CLASSIFICATION
    with pytest.raises(BadMetadata, match="task"):
        stated_task(request(TaskKind.TENSOR), unpacked(task="magic"))


def test_task_for_inspection_holds_stated_metadata_only() -> None:
    """Before the graph was looked at nothing is guessed."""
    assert stated_task(request(), unpacked()) == TaskSpec(TaskKind.IMAGE_CLASSIFICATION)


def test_precisions_come_from_uploader_then_archive_then_all() -> None:
    """fp32 may be named but is made anyway; nonsense is refused."""
    both = (Precision.INT8, Precision.FP16)
    assert settled_precisions(request(), unpacked()) == both
    assert settled_precisions(request(), unpacked(precisions=["fp32", "fp16"])) == (Precision.FP16,)
    told = ImportRequest("t", "m", "", precisions=())
    assert settled_precisions(told, unpacked(precisions=["fp16"])) == ()
    for nonsense in ("int8", ["int4"]):
        with pytest.raises(BadMetadata, match="precisions"):
            settled_precisions(request(), unpacked(precisions=nonsense))


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"params": {"chunk_samples": 512, "context_samples": 64}}, r"must together be 512, the window of input 'x'"),
        ({"params": {"context_samples": 512}}, r"chunk_samples \(0, at least 1\)"),
        ({"params": {"chunk_samples": "many"}}, r"params\.chunk_samples must be a number"),
        ({"state": [{"input": "h", "output": "y", "shape": [1]}]}, "probability of speech"),
    ],
)
def test_task_that_network_cannot_do_is_refused_at_import(metadata: dict[str, object], reason: str) -> None:
    """A window that the params do not fill, and no output that could be the answer."""
    x, y = TensorSpec("x", "FP32", (-1, 512)), TensorSpec("y", "FP32", (-1, 1))
    window = replace(INSPECTION, inputs=(x,), outputs=(y,))
    assert settled_task(request(TaskKind.VOICE_ACTIVITY), unpacked(), window).kind is TaskKind.VOICE_ACTIVITY
    with pytest.raises(BadMetadata, match=reason):
        settled_task(request(TaskKind.VOICE_ACTIVITY, **metadata), unpacked(), window)


def test_voice_activity_without_input_for_sound_is_refused_at_import() -> None:
    """With what to do."""
    with pytest.raises(BadMetadata, match=r"no input \[1, samples\] for sound; change its shape, or upload it"):
        settled_task(request(TaskKind.VOICE_ACTIVITY), unpacked(), INSPECTION)
