"""Profiling feeds what the variant would be fed."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from appliance.domain.catalogue import ImageSpec, Precision, StateSpec, TaskSpec, TensorSpec, Variant
from appliance.modelstore.importing.cases import CASES_BYTES_MAX, case_lists

PICTURE = Variant(
    "t/m:v", "t/m", "v", Precision.FP32, "", 0, (TensorSpec("image", "FP32", (-1, 3, -1, -1)),), (), batch_max=8
)
PICTURE_AXES = {"image": ("batch", "channel", "height", "width")}


def test_profile_inputs_of_rung_have_size_of_rung_in_every_batch() -> None:
    """Batches up to the variant's, at the height and width of its rung; one list, as nothing else is free."""
    (cases,) = case_lists(replace(PICTURE, height=32, width=48), PICTURE_AXES, TaskSpec())
    assert [(case.batch, case.inputs["image"].shape) for case in cases] == [
        (batch, (batch, 3, 32, 48)) for batch in (1, 2, 4, 8)
    ]
    assert cases[0].inputs["image"].dtype == np.float32


@pytest.mark.parametrize(
    ("task", "size"),
    [
        (TaskSpec(image=ImageSpec(height=96, width=64)), (96, 64)),
        (TaskSpec(), (224, 224)),
        (TaskSpec(), (48, 320)),
    ],
)
def test_profile_inputs_of_free_size_have_usual_size(task: TaskSpec, size: tuple[int, int]) -> None:
    """The task's preference, else a usual picture, or a usual line of text where only the width is free."""
    height = 48 if size == (48, 320) else -1
    variant = replace(PICTURE, inputs=(TensorSpec("image", "FP32", (-1, 3, height, -1)),))
    cases = next(case_lists(variant, PICTURE_AXES, task))
    assert cases[0].inputs["image"].shape == (1, 3, *size)


def test_profile_inputs_without_stated_size_try_other_sizes() -> None:
    """A network may refuse the usual size: a reader of lines takes a height of 48 to 64 pixels only."""
    sizes = [cases[0].inputs["image"].shape[2:] for cases in case_lists(PICTURE, PICTURE_AXES, TaskSpec())]
    assert sizes == [(side, side) for side in (224, 320, 256, 640, 128, 64)]
    task = TaskSpec(image=ImageSpec(height=48))
    assert [cases[0].inputs["image"].shape[2:] for cases in case_lists(PICTURE, PICTURE_AXES, task)] == [(48, 224)]


def test_profile_batches_are_bounded_in_bytes() -> None:
    """Inputs pass through the service's memory, so batches end where they would be large; a batch of one is always
    there.
    """
    (cases,) = case_lists(replace(PICTURE, height=1024, width=1024), PICTURE_AXES, TaskSpec())
    assert [case.batch for case in cases] == [1]
    (cases,) = case_lists(replace(PICTURE, height=512, width=512), PICTURE_AXES, TaskSpec())
    assert max(case.inputs["image"].nbytes for case in cases) <= CASES_BYTES_MAX


def test_profile_inputs_of_tokens_masks_states_and_constants_are_valid() -> None:
    """Ids are small and positive, masks ones, types and states zeros, constants what the task says; lengths vary."""
    inputs = (
        TensorSpec("input_ids", "INT64", (-1, -1)),
        TensorSpec("attention_mask", "INT64", (-1, -1)),
        TensorSpec("token_type_ids", "INT64", (-1, -1)),
        TensorSpec("state", "FP32", (2, -1, 4)),
        TensorSpec("sr", "INT64", ()),
    )
    axes: dict[str, tuple[str, ...]] = {
        name: ("batch", "sequence") for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    axes |= {"state": ("", "batch", ""), "sr": ()}
    task = TaskSpec(state=(StateSpec("state", "stateN", (2, 1, 4)),), constants={"sr": 16000.0})
    lists = list(case_lists(replace(PICTURE, inputs=inputs, batch_max=2), axes, task))
    assert [cases[0].inputs["input_ids"].shape[1] for cases in lists] == [128, 16, 1, 512]
    fed = lists[0][1].inputs
    assert fed["input_ids"].min() >= 1
    assert np.all(fed["attention_mask"] == 1)
    assert not fed["token_type_ids"].any()
    assert fed["state"].shape == (2, 2, 4)
    assert not fed["state"].any()
    assert (fed["sr"].shape, int(fed["sr"])) == ((), 16000)


def test_profile_inputs_of_signal_try_window_length_first() -> None:
    """A sound model may take windows of 512 samples only, a text model any length up to 512 tokens."""
    sound = replace(PICTURE, inputs=(TensorSpec("input", "FP32", (-1, -1)),), batch_max=1)
    text = replace(PICTURE, inputs=(TensorSpec("input", "INT64", (-1, -1)),), batch_max=1)
    axes = {"input": ("batch", "sequence")}
    first = [next(case_lists(variant, axes, TaskSpec()))[0].inputs["input"].shape for variant in (sound, text)]
    assert first == [(1, 512), (1, 128)]


def test_profile_inputs_of_equal_variants_are_equal() -> None:
    """A profile differs by what the box does, never by the draw."""
    one, two = (next(case_lists(PICTURE, PICTURE_AXES, TaskSpec())) for _ in range(2))
    for a, b in itertools.zip_longest(one, two):
        assert np.array_equal(a.inputs["image"], b.inputs["image"])


def test_profile_batches_beyond_the_bytes_are_repeated_where_large_ones_are_asked_for() -> None:
    """A picture of 512 x 512 has 3 MiB: up to 4 pass through the service, 64 (192 MiB) are made by the child of those.
    By default there are none beyond the bytes.
    """
    large = replace(PICTURE, height=512, width=512, batch_max=128)
    (cases,) = case_lists(large, PICTURE_AXES, TaskSpec())
    assert [case.batch for case in cases] == [1, 2, 4, 8, 16, 32, 64]
    assert [len(case.inputs["image"]) for case in cases] == [1, 2, 4, 4, 4, 4, 4]
    assert [dict(case.repeated) for case in cases[2:4]] == [{}, {"image": 0}]
    (cases,) = case_lists(replace(large, batch_max=8), PICTURE_AXES, TaskSpec())
    assert [case.batch for case in cases] == [1, 2, 4]
    (cases,) = case_lists(replace(PICTURE, height=32, width=48, batch_max=128), PICTURE_AXES, TaskSpec())
    assert [len(case.inputs["image"]) for case in cases] == [1, 2, 4, 8, 16, 32, 64, 128]
