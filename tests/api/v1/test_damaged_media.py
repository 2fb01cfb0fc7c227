"""What was lost of a text or a picture stands in the answer's `warnings`."""

import io
import tarfile
from pathlib import Path

import cv2
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.api.stand import Stand, job_end

pytestmark = pytest.mark.anyio


def embedding(folder: Path) -> bytes:
    """A table of seven words with its tokenizer, as an archive."""
    table = numpy_helper.from_array(np.eye(7, dtype=np.float32), "table")
    node = helper.make_node("Gather", ["table", "input_ids"], ["y"])
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "l"])
    rows = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "l", 7])
    graph = helper.make_graph([node], "words", [ids], [rows], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate("_abcdef")}, unk_token="_"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, body in (
            ("model.onnx", model.SerializeToString()),
            ("tokenizer.json", (folder / "tokenizer.json").read_bytes()),
            ("metadata.json", b'{"params": {"tokens_max": 4}, "precisions": []}'),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return target.getvalue()


async def test_text_longer_than_model_reads_is_answered_with_warning(stand: Stand, tmp_path: Path) -> None:
    museum = stand.client("museum")
    form = {"name": "words", "task": "text-embedding"}
    accepted = await museum.post("/v1/models", data=form, files={"file": embedding(tmp_path)})
    job = await job_end(museum, accepted.json()["id"])
    assert job["state"] == "done", job["error"]
    for texts, warnings in (
        (["a b c d"], []),
        (
            ["a", "a b c d e"],
            ["1 of 2 texts were cut (number 2 is the first): the model reads the first 4 tokens of each"],
        ),
    ):
        answer = await museum.post("/v1/applications/words/predict", json={"texts": texts})
        assert answer.json()["warnings"] == warnings


async def test_picture_with_a_missing_part_is_answered_with_warning(stand: Stand) -> None:
    """The end of the file is there, and nothing before it."""
    noise = np.random.default_rng(1).integers(0, 255, (30, 40, 3), np.uint8)
    whole = cv2.imencode(".jpg", cv2.resize(noise, (640, 480)))[1].tobytes()
    cut = whole[: len(whole) // 2] + b"\xff\xd9"
    device = stand.client("device")
    answers = [await device.post("/v1/applications/digits/predict", content=body) for body in (whole, cut)]
    told = [answer.json()["warnings"] for answer in answers]
    assert told == [[], ["the JPEG is damaged: the lower part of the picture is missing"]]
