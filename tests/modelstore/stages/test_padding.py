"""Which padding a network bears is seen in what it computes, never assumed."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest

from appliance.domain.catalogue import ImageSpec, Precision, TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadModel
from appliance.domain.padding import CroppedAxis, Fill, PaddedAxis, Padding
from appliance.modelstore.orders import EvaluateOrder, MakeOrder
from appliance.modelstore.stages.accuracy import evaluate
from appliance.modelstore.stages.padding import Run, Shown, find_padding
from appliance.modelstore.stages.variants import make
from appliance.tasks.base import Score
from tests.modelstore import networks
from tests.modelstore.stages.stage_runs import inspected, quiet
from tests.present import present

SIGNAL = (TensorSpec("x", "FP32", (-1, -1)),)
AXES = {"x": ("batch", "sequence")}
TOKENS = (TensorSpec("ids", "INT64", (-1, -1)), TensorSpec("mask", "INT64", (-1, -1)))
Arrays = dict[str, np.ndarray]


def signals(*sizes: int) -> list[Shown]:
    rng = np.random.default_rng(0)
    return [Shown([{"x": rng.standard_normal((1, size), np.float32)}]) for size in sizes]


def found(run: Run, samples: list[Shown]) -> Padding | None:
    return find_padding(run, SIGNAL, AXES, samples)


def test_padding_of_independent_columns_may_be_any_fill() -> None:
    """The first of the fills is taken; every output column has the place of its own input."""
    padding = present(found(lambda inputs: {"y": inputs["x"] * 2, "first": inputs["x"][:, :1]}, signals(20, 37)))
    assert (padding.fill, padding.axes, padding.is_exact) == (Fill.MEAN, (PaddedAxis("x", 1, 16),), True)
    assert padding.outputs == (CroppedAxis("y", 1, 0),)
    assert padding.evidence == "2 samples, outputs as without it"


def test_padding_of_sum_is_zero_and_of_last_column_is_edge() -> None:
    assert (padding := found(lambda inputs: {"y": inputs["x"].sum(1)}, signals(20, 37))) is not None
    assert (padding.fill, padding.outputs) == (Fill.ZERO, ())
    last = present(found(lambda inputs: {"y": inputs["x"][:, -1]}, signals(20, 37)))
    assert last.fill is Fill.EDGE


def test_padding_of_mean_is_mean_and_of_deviation_is_none() -> None:
    padding = present(found(lambda inputs: {"y": inputs["x"].mean(1)}, signals(20, 37)))
    assert padding.fill is Fill.MEAN
    assert found(lambda inputs: {"y": inputs["x"].std(1)}, signals(20, 37)) is None
    assert found(lambda inputs: {"y": inputs["x"] - inputs["x"].std(1, keepdims=True)}, signals(20, 37)) is None


@pytest.mark.parametrize("plus", range(4))
def test_padding_finds_strides_whatever_is_rounded(plus: int) -> None:
    """Outputs of ⌊(n + plus) / 4⌋ columns, at every size."""

    def run(inputs: Mapping[str, np.ndarray]) -> Arrays:
        x = inputs["x"]
        return {"y": np.pad(x, [(0, 0), (0, 4)])[:, ::4][:, : (x.shape[1] + plus) // 4]}

    padding = present(found(run, signals(20, 37)))
    (crop,) = padding.outputs
    assert [crop.size(n) for n in range(1, 99)] == [(n + plus) // 4 for n in range(1, 99)]


def test_padding_is_none_for_outputs_of_unforeseen_size() -> None:
    assert found(lambda inputs: {"y": np.ones(inputs["x"].size ** 2)}, signals(20, 37)) is None


def test_padding_is_none_where_network_does_not_run_at_step() -> None:
    def run(inputs: Mapping[str, np.ndarray]) -> Arrays:
        if inputs["x"].shape[1] % 5:
            raise BadModel(reason="multiples of five only")
        return {"y": inputs["x"] * 2}

    assert found(run, signals(20, 35)) is None


def test_padding_is_none_for_samples_of_one_size() -> None:
    assert found(lambda inputs: {"y": inputs["x"] * 2}, signals(20, 20, 20)) is None


def test_padding_of_tokens_is_possible_where_mask_is_used() -> None:
    """Ids and mask grow together; a network that reads the mask bears padding, one that does not read it does not."""
    samples = [Shown([{"ids": np.arange(1, n + 1)[None], "mask": np.ones((1, n), np.int64)}]) for n in (5, 12, 16)]
    axes = {"ids": ("batch", "sequence"), "mask": ("batch", "sequence")}

    def pooled(inputs: Mapping[str, np.ndarray]) -> Arrays:
        return {"y": (inputs["ids"] * inputs["mask"]).sum(1) / inputs["mask"].sum(1)}

    padding = present(find_padding(pooled, TOKENS, axes, samples))
    assert (padding.fill, len(padding.axes), padding.is_exact) == (Fill.ZERO, 2, True)
    assert find_padding(lambda inputs: {"y": inputs["ids"].mean(1)}, TOKENS, axes, samples) is None


def judged(samples: list[Shown], wrong: int) -> list[Shown]:
    """So that the answers to so many of them are worth nothing with padding."""

    def worth(is_spoilt: bool, outputs: list[Arrays], own: list[Arrays]) -> Score:
        is_own = all(np.array_equal(one["y"], other["y"]) for one, other in zip(outputs, own, strict=True))
        return Score(1.0 if is_own or not is_spoilt else 0.0, 1.0, "read")

    return [Shown(one.steps, partial(worth, at < wrong)) for at, one in enumerate(samples)]


def test_inexact_padding_needs_eight_samples_of_no_worse_accuracy() -> None:
    """Outputs that change are borne where they are read alike: on eight samples at least, all of them here."""

    def run(inputs: Mapping[str, np.ndarray]) -> Arrays:
        return {"y": inputs["x"] + inputs["x"].std(1, keepdims=True)}

    many = signals(*range(20, 32))
    padding = present(found(run, judged(many, 0)))
    assert (padding.is_exact, padding.evidence) == (False, "12 samples, accuracy 1.0000 after 1.0000")
    assert found(run, judged(many, 1)) is None
    assert found(run, judged(many[:7], 0)) is None


def reader() -> bytes:
    """Columns of a picture of 8 rows to three classes by their brightness, four columns a step."""
    weights = {"w": np.full((3, 3, 8, 4), 1 / 96, np.float32) * np.array([0, 1, -1], np.float32)[:, None, None, None]}
    nodes = "c = Conv<strides=[8, 4]>(x, w) s = Squeeze(c, axes) y = Transpose<perm=[0, 2, 1]>(s)"
    shapes: dict[str, Sequence[int | str]] = {"x": ("n", 3, 8, "w")}
    more = weights | {"axes": np.array([2], np.int64)}
    return networks.model(nodes, shapes, {"y": ("n", "t", 3)}, more).SerializeToString()


def test_evaluation_finds_padding_of_text_lines(tmp_path: Path) -> None:
    """By the very pictures that it evaluates, as they are decoded for it."""
    upload = tmp_path / "upload.onnx"
    upload.write_bytes(reader())
    folder = tmp_path / "evaluation"
    folder.mkdir()
    samples = []
    for at, width in enumerate((12, 20, 28, 36, 44, 52, 60, 76)):
        picture = np.zeros((8, width, 3), np.uint8)
        picture[:, 4:8] = 255
        cv2.imwrite(str(folder / f"{at}.png"), picture)
        samples.append({"file": f"{at}.png", "text": "a"})
    (folder / "truth.json").write_text(json.dumps({"samples": samples}))
    image = ImageSpec(resize="keep-height", height=8, multiple=4, mean=(127.5,), std=(127.5,), pad_value=127.5)
    task = TaskSpec(TaskKind.TEXT_RECOGNITION, ("", "a", "b"), image, "ctc")
    inspection = inspected(upload, tmp_path, task)
    order = MakeOrder(inspection, task, Precision.FP32, str(tmp_path / "made"))
    variants = make(order, quiet).variants
    evaluated = evaluate(EvaluateOrder(inspection, task, variants, str(folder)), quiet)
    (padding,) = evaluated.paddings
    assert padding is not None
    assert padding.axes == (PaddedAxis("x", 3, 64),)
    assert padding.is_exact
    assert [padding.outputs[0].size(width) for width in (12, 20, 64)] == [3, 5, 16]
