"""What a replay sends to an application: tensors that its task takes, and the sequence of a stateful model's
request.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from appliance.clock import NS_PER_S
from appliance.domain.catalogue import TaskKind
from appliance.tasks.datatypes import dtype_of
from appliance.wire.catalogue import ModelShape

LENGTH_OF_SIGNALS, LENGTH_OF_TOKENS, SIDE, WIDTH_OF_LINES = 512, 128, 224, 320
"""Sizes of free axes: the first that the box itself profiles with."""
CHANNELS = (1, 3, 4)
SEQUENCE_LENGTH = 32
"""Requests from the start of a sequence to its end: a second of sound in chunks of 32 ms."""
IDLE_NS_MAX = 30 * NS_PER_S
"""A sequence that was silent for longer is not gone on with: half of what a box remembers one by default."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of free axes, where the task prefers some: height and width of pictures, length of a signal and of a text."""

    height: int | None = None
    width: int | None = None
    signal: int = LENGTH_OF_SIGNALS
    tokens: int = LENGTH_OF_TOKENS

    @classmethod
    def of(cls, model: ModelShape) -> "Sizes":
        """Those of the first variant with a size of its own, else what the task says."""
        image, params = model.task.image, model.task.params
        rung = next((v for v in model.variants if v.height is not None), None)
        height, width = (rung.height, rung.width) if rung else (image.height, image.width) if image else (None, None)
        signal, tokens = LENGTH_OF_SIGNALS, LENGTH_OF_TOKENS
        if model.task.kind is TaskKind.VOICE_ACTIVITY:  # a run takes a chunk, behind the last samples of the one before
            chunk = int(params.get("chunk_samples", LENGTH_OF_SIGNALS))
            signal = chunk + int(params.get("context_samples", chunk // 8))
        return cls(height, width, signal, min(tokens, int(params.get("tokens_max", tokens))))


@dataclass(slots=True)
class Stream:
    """A sequence under way; `sent` requests of it have been sent."""

    id: str
    sent: int = 0
    used_ns: int = 0


@dataclass(slots=True)
class Streams:
    """The sequences of one application.

    A request goes on with one that waits for no answer, else it starts a new one; so no request waits for another.
    """

    name: str = field(default_factory=lambda: secrets.token_hex(4))
    made: int = 0
    resting: list[Stream] = field(default_factory=list)

    def take(self, now_ns: int) -> tuple[Stream, dict[str, object]]:
        """The sequence of the next request, and what the request says of it."""
        self.resting = [stream for stream in self.resting if now_ns - stream.used_ns < IDLE_NS_MAX]
        if self.resting:
            stream = self.resting.pop()
        else:
            self.made += 1
            stream = Stream(f"replay-{self.name}-{self.made}")
        stream.sent += 1
        parameters: dict[str, object] = {"sequence_id": stream.id, "sequence_start": stream.sent == 1}
        return stream, parameters | {"sequence_end": stream.sent == SEQUENCE_LENGTH}

    def give(self, stream: Stream, now_ns: int, *, answered: bool) -> None:
        """It was answered and can go on; one that was refused, or has ended, cannot."""
        if answered and stream.sent < SEQUENCE_LENGTH:
            stream.used_ns = now_ns
            self.resting.append(stream)


class Feed:
    """Makes the bodies of one application's requests; tensors are made once, as equal requests are."""

    def __init__(
        self,
        inputs: Sequence[Mapping[str, Any]],
        rng: Random,
        sizes: Sizes = Sizes(),
        own: frozenset[str] = frozenset(),
    ) -> None:
        """`inputs`: of the model's metadata; `own`: those that the box fills itself (constants, states of a
        sequence, optional ones).
        """
        fed = [one for one in inputs if one["name"] not in own]
        arrays = [_tensor(one, np.random.default_rng(rng.getrandbits(64)), sizes) for one in fed]
        raw = [_bytes_of(array) for array in arrays]
        self._tail = b"".join(raw)
        self._described = [
            {
                "name": one["name"],
                "datatype": one["datatype"],
                "shape": list(array.shape),
                "parameters": {"binary_data_size": len(part)},
            }
            for one, array, part in zip(fed, arrays, raw, strict=True)
        ]

    def body(self, parameters: Mapping[str, object] | None = None) -> tuple[bytes, int]:
        """An infer body with binary tensors, and the length of its JSON."""
        document = {"inputs": self._described, "parameters": {"binary_data_output": True, **(parameters or {})}}
        text = json.dumps(document).encode()
        return text + self._tail, len(text)


def feed_of(inputs: Sequence[Mapping[str, Any]], model: ModelShape | None, rng: Random) -> Feed:
    """The feed of an application; without its model (a key that may not look) every input is made."""
    if model is None:
        return Feed(inputs, rng)
    optional = {one.name for variant in model.variants for one in variant.inputs if one.optional}
    own = frozenset(model.task.constants) | {state.input for state in model.task.state} | optional
    return Feed(inputs, rng, Sizes.of(model), own)


def _tensor(described: Mapping[str, Any], rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
    """Values that any network takes: noise, token ids 1..99, masks of ones, types of zero; one row on a free axis."""
    dtype = dtype_of(described["datatype"])
    shape = _sizes(described["shape"], sizes, is_signal=dtype.kind == "f")
    name = described["name"].lower()
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "O":
        return np.full(shape, "text", dtype)
    if "type" in name or "segment" in name:
        return np.zeros(shape, dtype)
    return np.ones(shape, dtype) if "mask" in name or dtype.kind == "b" else rng.integers(1, 100, shape).astype(dtype)


def _sizes(shape: Sequence[int], sizes: Sizes, *, is_signal: bool) -> list[int]:
    if len(shape) == 4:
        height_at = 1 if shape[3] in CHANNELS else 2
        width = sizes.width or (SIDE if shape[height_at] < 0 else WIDTH_OF_LINES)
        free = {height_at: sizes.height or SIDE, height_at + 1: width}
        return [size if size >= 0 else free.get(axis, 1) for axis, size in enumerate(shape)]
    length = sizes.signal if is_signal else sizes.tokens
    return [size if size >= 0 else 1 if axis == 0 else length for axis, size in enumerate(shape)]


def _bytes_of(array: np.ndarray) -> bytes:
    if array.dtype.kind != "O":
        return array.tobytes()
    texts = [str(value).encode() for value in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
