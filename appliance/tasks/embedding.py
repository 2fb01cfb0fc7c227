"""Pictures and texts in, unit vectors out: near vectors mean alike things."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from appliance.domain.catalogue import TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia, BadMetadata
from appliance.tasks import strict_json
from appliance.tasks.base import (
    Answer,
    Arrays,
    Decoded,
    Media,
    Score,
    Target,
    TokenOrder,
    TokenRow,
    TokenRows,
    fed_inputs,
    number,
    with_constants,
    word,
)
from appliance.tasks.datatypes import dtype_of
from appliance.tasks.image import decode_picture
from appliance.tasks.large_json import listed
from appliance.tasks.metrics import cosines, retrieval

TEXTS_MAX = 256
CHARACTERS_MAX = 500_000
"""Of all texts of a request: a tokenizer reads all of a text even where only its beginning counts."""
TEXTS_PER_RUN = 16
TOKENS_MAX = 256
_TOKENIZER_FILE = "tokenizer.json"
_REASON_CHARACTERS_MAX = 300


def vectors_of(answer: Mapping[str, Any]) -> list[list[float]]:
    """The embeddings of an answer, one or several."""
    return answer["embeddings"] if "embeddings" in answer else [answer["embedding"]]


def _accuracy(answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
    """Against `embedding(s)` by cosine, or of several texts with `groups` by retrieval.

    A single `group` each needs the whole set: see `metrics.retrieval`.
    """
    if "groups" in truth:
        return retrieval(vectors_of(answer), truth["groups"])
    if "embedding" in truth or "embeddings" in truth:
        return cosines(vectors_of(answer), vectors_of(truth))
    raise BadMetadata(reason="a truth of this task needs 'embedding', 'embeddings', 'group' or 'groups'")


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0))


class ImageEmbedding:
    """Any network whose first floating-point output describes the picture. Param `normalise` 0 leaves its length."""

    kind = TaskKind.IMAGE_EMBEDDING

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        return decode_picture(media, spec, target)

    def encode(self, outputs: list[dict[str, np.ndarray]], decoded: Decoded, spec: TaskSpec) -> Answer:
        array = _first_float(outputs[0])
        if array.ndim == 4:  # a feature map: its mean over the picture
            axes = (1, 2) if spec.image is not None and spec.image.layout == "NHWC" else (2, 3)
            array = array.mean(axis=axes)
        vector = array.astype(np.float64).ravel()
        vector = _unit(vector) if number(spec, "normalise", 1) else vector
        return Answer({"embedding": listed(vector.round(7)), "dimensions": len(vector)})

    def similarity(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Score:
        return cosines(vectors_of(answer), vectors_of(reference))

    def accuracy(self, answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
        return _accuracy(answer, truth)


def _first_float(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    for array in outputs.values():
        if array.dtype.kind == "f" and array.ndim >= 2:
            return np.asarray(np.nan_to_num(array))
    raise BadMetadata(reason="the model has no floating-point output that could be an embedding")


class TextEmbedding:
    """Sentence transformers: tokenizer.json beside the graph, mean over the tokens (param `pooling` mean, cls or
    max), length 1.
    """

    kind = TaskKind.TEXT_EMBEDDING

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        order = self.token_order(media, spec, target)
        return self.decode_tokens(order, tokenize(order.file, order.texts, order.tokens_max), spec, target)

    def token_order(self, media: Media, spec: TaskSpec, target: Target) -> TokenOrder:
        texts, is_list = read_texts(media)
        path = target.assets.get(_TOKENIZER_FILE)
        if path is None:
            raise BadMetadata(reason=f"this model has no {_TOKENIZER_FILE}: upload it together with the graph")
        fed = fed_inputs(spec, target)
        fixed = [tensor.shape[1] for tensor in fed if len(tensor.shape) == 2 and tensor.shape[1] > 0]
        tokens_max = min(int(number(spec, "tokens_max", TOKENS_MAX)), *fixed, *_largest(fed, target, 1), 100_000)
        return TokenOrder(path, texts, tokens_max, is_list)

    def decode_tokens(self, order: TokenOrder, rows: TokenRows, spec: TaskSpec, target: Target) -> Decoded:
        fed = fed_inputs(spec, target)
        is_free = all(tensor.shape[:1] == (-1,) for tensor in fed)
        per_run = min((TEXTS_PER_RUN, *_largest(fed, target, 0))) if is_free else 1
        runs = [rows[at : at + per_run] for at in range(0, len(rows), per_run)]
        batches = [_token_tensors(run, fed) for run in runs]
        masks = [mask for _, mask in batches]
        steps = [with_constants(step, spec, target) for step, _ in batches]
        return Decoded(steps, (masks, order.is_list), _cuts(order, rows))

    def encode(self, outputs: list[dict[str, np.ndarray]], decoded: Decoded, spec: TaskSpec) -> Answer:
        masks, is_list = decoded.context
        pooled = [
            _pool(_first_float(out), mask, word(spec, "pooling", "mean"))
            for out, mask in zip(outputs, masks, strict=True)
        ]
        table = np.concatenate(pooled).astype(np.float64)
        table = _unit(table) if number(spec, "normalise", 1) else table
        vectors = [listed(row) for row in table.round(7)]
        body = {"embeddings": vectors} if is_list else {"embedding": vectors[0]}
        return Answer({**body, "dimensions": table.shape[1]})

    def similarity(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Score:
        return cosines(vectors_of(answer), vectors_of(reference))

    def accuracy(self, answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
        return _accuracy(answer, truth)


def _cuts(order: TokenOrder, rows: TokenRows) -> tuple[str, ...]:
    """What was lost of the texts, for a person."""
    cut = [number for number, row in enumerate(rows, 1) if row.is_cut]
    if not cut:
        return ()
    if not order.is_list:
        return (f"the text was cut: the model reads its first {order.tokens_max} tokens",)
    which = f"{len(cut)} of {len(rows)} texts were cut (number {cut[0]} is the first)"
    return (f"{which}: the model reads the first {order.tokens_max} tokens of each",)


def read_texts(media: Media) -> tuple[list[str], bool]:
    """(texts, whether a list was asked) from {"text": ...}, {"texts": [...]} or plain text.

    Raises: BadMedia.
    """
    if len(media.body) > CHARACTERS_MAX:
        raise BadMedia(reason=f"at most {CHARACTERS_MAX} bytes of text in one request")
    try:
        decoded = media.body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadMedia(reason="the text is not UTF-8") from None
    if "json" in media.content_type and not decoded.lstrip().startswith("{"):
        raise BadMedia(reason='send {"text": "..."} or {"texts": ["...", "..."]}')
    if media.content_type.startswith("text/") or not decoded.lstrip().startswith("{"):
        return [decoded], False
    try:
        message = strict_json.read(decoded)
    except json.JSONDecodeError as error:
        raise BadMedia(reason=f"the JSON is not valid: {error}") from None
    if isinstance(message.get("text"), str):
        return [message["text"]], False
    texts = message.get("texts")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise BadMedia(reason='send {"text": "..."} or {"texts": ["...", "..."]}')
    if len(texts) > TEXTS_MAX:
        raise BadMedia(reason=f"at most {TEXTS_MAX} texts in one request")
    return texts, True


def tokenize(path: str, texts: list[str], tokens_max: int) -> TokenRows:
    """Each text's tokens, at most `tokens_max`.

    Raises: BadMetadata for a tokenizer that cannot be read or breaks off.
    """
    try:
        tokenizer = _tokenizer(path, tokens_max)
        # One by one: encode_batch would start a thread pool of its own for a handful of short sentences.
        encodings = [tokenizer.encode(text) for text in texts]
    except (BadMetadata, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # bare Exception, and panics of the library, which are no Exceptions
        raise BadMetadata(reason=f"{_TOKENIZER_FILE} cannot be used: {str(error)[:_REASON_CHARACTERS_MAX]}") from None
    return [TokenRow(encoding.ids, encoding.type_ids, bool(encoding.overflowing)) for encoding in encodings]


def parsed_tokenizers() -> int:
    """How many files were parsed so far in this process."""
    return _tokenizer.cache_info().misses


@lru_cache(maxsize=8)
def _tokenizer(path: str, tokens_max: int) -> Any:
    """A parsed tokenizer; about 20 ms and a few MB each, so a few are kept.

    Files are content-addressed: a path never changes meaning.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_padding()
    tokenizer.enable_truncation(tokens_max)
    return tokenizer


def _largest(fed: list[TensorSpec], target: Target, axis: int) -> tuple[int, ...]:
    """Where an axis of the inputs [texts, tokens] ends."""
    shapes = (target.shape_max.get(tensor.name, ()) for tensor in fed)
    return tuple(shape[axis] for shape in shapes if len(shape) == 2)


def _token_tensors(rows: TokenRows, fed: list[TensorSpec]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs by what their names say (ids, mask, types), padded with zeros, and the mask int64[N, L]."""
    fixed = next((tensor.shape[1] for tensor in fed if len(tensor.shape) == 2 and tensor.shape[1] > 0), None)
    length = fixed or max(1, *(len(row.ids) for row in rows))
    ids, mask, types = (np.zeros((len(rows), length), np.int64) for _ in range(3))
    for place, row in enumerate(rows):
        count = len(row.ids)
        ids[place, :count], mask[place, :count], types[place, :count] = row.ids, 1, row.segments
    step = {}
    for tensor in fed:
        name = tensor.name.lower()
        values = mask if "mask" in name else types if "type" in name or "segment" in name else ids
        step[tensor.name] = values.astype(dtype_of(tensor.datatype), copy=False)
    return step, mask


def _pool(hidden: np.ndarray, mask: np.ndarray, pooling: str) -> np.ndarray:
    """[N, L, D] → [N, D] over the tokens that are no padding; [N, D] stays."""
    if hidden.ndim == 2:
        return hidden
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask[:, :, None].astype(np.float32)
    if pooling == "max":
        return np.asarray(np.where(weights > 0, hidden, -np.inf).max(axis=1))
    return np.asarray((hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1.0))
