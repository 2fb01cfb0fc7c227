"""Embeddings: a tokenizer from its file, means over real tokens only, unit length."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from appliance.domain.catalogue import ImageSpec, TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia, BadMetadata
from appliance.tasks import TASKS
from appliance.tasks.base import Decoded, Media, Target, run_steps
from appliance.tasks.embedding import read_texts

TASK = TASKS[TaskKind.TEXT_EMBEDDING]
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "one", "two", "three"]
SPEC = TaskSpec(TaskKind.TEXT_EMBEDDING)


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    """A word tokenizer's file, with the usual marks at both ends."""
    made = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return str(path)


def target(tokenizer: str, length: int = -1, batch: int = -1, datatype: str = "INT64") -> Target:
    names = ("input_ids", "attention_mask", "token_type_ids")
    return Target(
        tuple(TensorSpec(name, datatype, (batch, length)) for name in names), (), assets={"tokenizer.json": tokenizer}
    )


def bag(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A network that marks each token's word; it marks padding as well, which the pooling must ignore."""
    return {"last_hidden_state": np.eye(len(WORDS), dtype=np.float32)[inputs["input_ids"]]}


def embed(body: bytes, to: Target, spec: TaskSpec = SPEC, content_type: str = "") -> dict[str, Any]:
    decoded = TASK.decode(Media(body, content_type), spec, to, {})
    return TASK.encode(run_steps(decoded, spec, bag)[0], decoded, spec).body


def test_text_embedding_inputs_are_tokens_masks_and_types(tokenizer: str) -> None:
    """Inputs are filled by their names, in their own type, padded with zeros."""
    decoded = TASK.decode(Media(b'{"texts": ["one two", "three"]}'), SPEC, target(tokenizer, datatype="INT32"), {})
    (step,) = decoded.steps
    assert step["input_ids"].tolist() == [[1, 4, 5, 2], [1, 6, 2, 0]]
    assert step["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert step["token_type_ids"].tolist() == [[0] * 4] * 2
    assert str(step["input_ids"].dtype) == "int32"


def test_texts_beyond_the_largest_shape_are_cut_and_split_into_runs(tokenizer: str) -> None:
    most = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (2, 4))
    decoded = TASK.decode(
        Media(b'{"texts": ["one two three one two", "three", "one"]}'),
        SPEC,
        replace(target(tokenizer), shape_max=most),
        {},
    )
    assert [step["input_ids"].tolist() for step in decoded.steps] == [[[1, 4, 5, 2], [1, 6, 2, 0]], [[1, 4, 2]]]


def test_text_embedding_is_the_same_alone_and_beside_longer_text(tokenizer: str) -> None:
    """Padding changes nothing; one text is answered with one vector."""
    alone = embed(b'{"text": "one"}', target(tokenizer))
    both = embed(b'{"texts": ["one", "two two two two"]}', target(tokenizer))
    assert alone["dimensions"] == both["dimensions"] == len(WORDS)
    np.testing.assert_allclose(alone["embedding"], both["embeddings"][0], atol=1e-6)
    assert np.linalg.norm(alone["embedding"]) == pytest.approx(1.0)
    np.testing.assert_allclose(np.array(alone["embedding"]) ** 2, [0, 1 / 3, 1 / 3, 0, 1 / 3, 0, 0], atol=1e-6)


def test_text_embedding_is_pooled_as_stated(tokenizer: str) -> None:
    """Mean, the first token, the largest value; and without unit length."""
    for pooling, wanted in (
        ("mean", [0, 1 / 3, 1 / 3, 0, 1 / 3, 0, 0]),
        ("cls", [0, 1, 0, 0, 0, 0, 0]),
        ("max", [0, 1, 1, 0, 1, 0, 0]),
    ):
        spec = TaskSpec(params={"pooling": pooling, "normalise": 0.0})
        np.testing.assert_allclose(embed(b"one", target(tokenizer), spec)["embedding"], wanted, atol=1e-6)


def test_text_embedding_batches_follow_the_graph(tokenizer: str) -> None:
    """A free batch takes sixteen texts a run, a fixed one takes one; a fixed length is filled up and keeps the end
    mark.
    """
    body = json.dumps({"texts": ["one"] * 20}).encode()
    assert [step["input_ids"].shape for step in TASK.decode(Media(body), SPEC, target(tokenizer), {}).steps] == [
        (16, 3),
        (4, 3),
    ]
    fixed = target(tokenizer, 5, 1)
    steps = TASK.decode(Media(b'{"texts": ["one", "one two three one two three"]}'), SPEC, fixed, {}).steps
    assert [step["input_ids"].tolist() for step in steps] == [[[1, 4, 2, 0, 0]], [[1, 4, 5, 6, 2]]]
    assert len(embed(body, fixed)["embeddings"]) == 20


def test_long_text_is_cut_at_the_tokens_of_the_model(tokenizer: str) -> None:
    spec = TaskSpec(params={"tokens_max": 6.0})
    (step,) = TASK.decode(Media(b"one " * 1000), spec, target(tokenizer), {}).steps
    assert step["input_ids"].tolist() == [[1, 4, 4, 4, 4, 2]]


def test_cut_text_has_a_warning(tokenizer: str) -> None:
    """A text that just fits has none; of several texts the warning tells how many, and which is the first."""
    spec = TaskSpec(params={"tokens_max": 6.0})
    told = {
        b"one one one one": (),
        b"one one one one one": ("the text was cut: the model reads its first 6 tokens",),
        b'{"texts": ["one", "one one one one one", "two"]}': (
            "1 of 3 texts were cut (number 2 is the first): the model reads the first 6 tokens of each",
        ),
    }
    for body, warnings in told.items():
        assert TASK.decode(Media(body), spec, target(tokenizer), {}).warnings == warnings


def test_text_request_is_read_as_json_or_plain_text() -> None:
    """JSON with one text or several, plain text in UTF-8; other bodies are refused with the reason."""
    assert read_texts(Media(b'{"text": "\xc3\xa4"}')) == (["ä"], False)
    assert read_texts(Media(b' {"texts": ["a", "b"]}', "application/json")) == (["a", "b"], True)
    assert read_texts(Media("grün".encode(), "text/plain; charset=utf-8")) == (["grün"], False)
    assert read_texts(Media(b'{"text": "a"}', "text/plain")) == (['{"text": "a"}'], False)
    wrong = [
        b"\xff\xfe",
        b'{"text": ',
        b'{"texts": []}',
        b'{"texts": [1]}',
        b'{"word": "a"}',
        b"a" * 600_000,
        json.dumps({"texts": ["a"] * 300}).encode(),
    ]
    for body in wrong:
        with pytest.raises(BadMedia):
            read_texts(Media(body))
    with pytest.raises(BadMedia, match="texts"):
        read_texts(Media(b'["a"]', "application/json"))


def test_missing_or_broken_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    """The tenant learns which file to bring."""
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    with pytest.raises(BadMetadata, match="upload it together with the graph"):
        TASK.decode(Media(b"a"), SPEC, Target((), ()), {})
    with pytest.raises(BadMetadata, match="Model missing"):
        TASK.decode(Media(b"a"), SPEC, target(str(broken)), {})


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_picture_embedding_is_a_unit_vector(layout: str) -> None:
    """A feature map is averaged over the picture."""
    task = TASKS[TaskKind.IMAGE_EMBEDDING]
    spec = TaskSpec(image=ImageSpec(layout=layout))
    plain = task.encode([{"y": np.array([[3.0, 4.0]], np.float32)}], Decoded([]), spec).body
    assert plain == {"embedding": [0.6, 0.8], "dimensions": 2}
    shape = (1, 5, 5, 2) if layout == "NHWC" else (1, 2, 5, 5)
    maps = np.broadcast_to(np.array([3.0, 4.0]).reshape((1, 1, 1, 2) if layout == "NHWC" else (1, 2, 1, 1)), shape)
    assert task.encode([{"y": maps}], Decoded([]), spec).body == plain
    zero = task.encode([{"y": np.array([[0.0, np.nan]], np.float32)}], Decoded([]), spec).body
    assert zero["embedding"] == [0.0, 0.0]
    with pytest.raises(BadMetadata, match="embedding"):
        task.encode([{"y": np.array([[1]])}], Decoded([]), spec)


def test_embedding_scores_are_cosine_and_retrieval() -> None:
    """Cosine to a reference; retrieval within one answer or over a set."""
    near, far = {"embedding": [1.0, 0.0]}, {"embedding": [0.0, 1.0]}
    assert TASK.similarity(near, near).value == 1.0
    assert TASK.similarity(near, far).value == 0.0
    assert TASK.accuracy(near, {"embedding": [1.0, 1.0]}).value == pytest.approx(0.7071, abs=1e-4)
    several = {"embeddings": [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]]}
    assert TASK.accuracy(several, {"groups": ["a", "a", "b", "b"]}).value == 1.0
    assert TASK.accuracy(several, {"groups": ["a", "b", "a", "b"]}).value == 0.0
    with pytest.raises(BadMetadata, match="group"):
        TASK.accuracy(near, {"text": "?"})


def test_tokenizer_panic_is_refused_as_bad_metadata(tmp_path: Path, tokenizer: str) -> None:
    """A panic is no `Exception`: no caller would have caught it."""
    described = json.loads(Path(tokenizer).read_text())
    described["pre_tokenizer"] = {"type": "FixedLength", "length": 0}
    panicking = tmp_path / "panicking.json"
    panicking.write_text(json.dumps(described))
    with pytest.raises(BadMetadata, match="cannot be used: chunk size"):
        TASK.decode(Media(b"a"), SPEC, target(str(panicking)), {})
