"""What a task is: bytes to tensors before a run, tensors to an answer after it, and how good an answer was.

Tasks are pure and stateless: what a sequence must remember goes in and out (`carry` for the task, `state` for the
model). The offline loop (`run_steps`) and the online path share `step_inputs` and `next_state`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from appliance.domain.catalogue import Shapes, StateSpec, TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks.datatypes import cast, default_array, dtype_of

Arrays = Mapping[str, np.ndarray]
Infer = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """A picture that is decoded already.

    array: uint8[H, W, 3], BGR, upright; nobody writes to it. It may be smaller than the original, by 2, 4 or 8.
    """

    array: np.ndarray
    width: int
    height: int
    """Of the upright original."""
    warnings: tuple[str, ...] = ()
    """What was lost of it, for a person."""


@dataclass(frozen=True, slots=True)
class Media:
    """What a caller sent. The content type is a hint: the first bytes decide where they can."""

    body: bytes
    content_type: str = ""
    accept: str = ""
    """What form of answer the caller likes, as in HTTP; where it is a picture, an answer that is one comes as one."""
    pixels: Pixels | None = None
    """In place of `body`, of a picture that was decoded before."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the chosen variant wants."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    height: int | None = None
    width: int | None = None
    """Input size of the variant's rung; None where the graph or the picture decides."""
    assets: Mapping[str, str] = field(default_factory=dict)
    """File name → path of what was uploaded beside the graph, for example `tokenizer.json`."""
    shape_max: Shapes = field(default_factory=dict)
    """Largest shape of each input; without an entry, any."""


@dataclass(slots=True)
class Decoded:
    """Inputs of one run or of several in a row, and whatever `encode` needs to know about the media."""

    steps: list[dict[str, np.ndarray]]
    context: Any = None
    warnings: tuple[str, ...] = ()
    """What was lost of the media, for a person."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is plain JSON data; `carry` is what the task itself must remember for the sequence's next request."""

    body: dict[str, Any]
    carry: Arrays = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """Quality of some answers as a weighted sum, so that scores add up over a set. `value` is in 0..1."""

    value_sum: float
    weight: float
    metric: str

    @property
    def value(self) -> float:
        """The mean; 1 where there was nothing to find and nothing was found."""
        return min(1.0, max(0.0, self.value_sum / self.weight)) if self.weight else 1.0

    def __add__(self, other: "Score") -> "Score":
        return Score(self.value_sum + other.value_sum, self.weight + other.weight, self.metric)


class TokenRow(NamedTuple):
    """The tokens of one text."""

    ids: list[int]
    segments: list[int]
    is_cut: bool = False
    """Whether the text goes on."""


TokenRows = list[TokenRow]


@dataclass(frozen=True, slots=True)
class TokenOrder:
    """Texts that a tokenizer is wanted for."""

    file: str
    """Of the tokenizer; uploaded, so reading it is a hazard as running a graph is."""
    texts: list[str]
    tokens_max: int
    is_list: bool
    """Whether the caller sent several texts, or one that stands alone."""


class Task(Protocol):
    """One kind of network, as its caller sees it."""

    @property
    def kind(self) -> TaskKind:
        """The task this object stands for."""
        ...

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        """Bytes → inputs of the run(s). Blocks for milliseconds; called from a thread.

        Raises: BadMedia, BadTensor; BadMetadata when the model lacks what the task needs.
        """
        ...

    def encode(self, outputs: list[dict[str, np.ndarray]], decoded: Decoded, spec: TaskSpec) -> Answer:
        """Outputs, one dict per step → answer.

        Raises: BadMetadata when the outputs are not what the decoder expects.
        """
        ...

    def similarity(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Score:
        """How near an answer is to the one of a reference variant (fidelity)."""
        ...

    def accuracy(self, answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
        """How right an answer is.

        Raises: BadMetadata when the truth lacks the task's key.
        """
        ...


@runtime_checkable
class ChecksModel(Protocol):
    """A task that not every network of its inputs' ranks can do."""

    def check(self, spec: TaskSpec, target: Target) -> None:
        """Whether a network of these shapes can do what the spec says; asked at its import. Raises: BadMetadata."""


@dataclass(frozen=True, slots=True)
class OpenedMedia:
    """Media of which nothing large is made yet."""

    bytes: int
    """What the next step takes at most."""
    go_on: "Callable[[], Decoded | OpenedMedia]"
    """The next step of decoding. Raises: as `Task.decode`."""


@runtime_checkable
class OpensMedia(Protocol):
    """A task whose media may become far larger than it is, and which can tell before."""

    def open(self, media: Media, spec: TaskSpec, target: Target) -> OpenedMedia:
        """The first step of `decode`. Blocks; called from a thread. Raises: as `decode`."""
        ...


@runtime_checkable
class ReadsTokens(Protocol):
    """A task whose `decode` can be done in two steps, with the tokenizer somewhere else in between."""

    def token_order(self, media: Media, spec: TaskSpec, target: Target) -> TokenOrder:
        """What the tokenizer is to do. Raises: BadMedia, BadMetadata."""
        ...

    def decode_tokens(self, order: TokenOrder, rows: TokenRows, spec: TaskSpec, target: Target) -> Decoded:
        """`rows`: what the tokenizer made of the order's texts. Raises: BadTensor."""
        ...


def fed_inputs(spec: TaskSpec, target: Target) -> list[TensorSpec]:
    """The inputs that the media fills: all but states, constants and optional ones."""
    return [tensor for tensor in target.inputs if tensor.name not in spec.supplied]


def with_constants(inputs: dict[str, np.ndarray], spec: TaskSpec, target: Target) -> dict[str, np.ndarray]:
    """Add the constants in the type and rank that the graph declares, and optional inputs that are not there."""
    for tensor in target.inputs:
        if tensor.name in spec.constants:
            value = np.full([1] * len(tensor.shape), spec.constants[tensor.name])
            inputs[tensor.name] = cast(value, tensor.datatype)
    return with_defaults(inputs, spec)


def with_defaults(inputs: Arrays, spec: TaskSpec) -> dict[str, np.ndarray]:
    """The inputs, and optional ones that are not among them."""
    return {name: default_array(one) for name, one in spec.defaults.items() if name not in inputs} | dict(inputs)


def zero_state(state: StateSpec) -> np.ndarray:
    """What a sequence starts from; a free dimension is 1."""
    return np.zeros([size if size > 0 else 1 for size in state.shape], dtype_of(state.datatype))


def step_inputs(
    step: Arrays, spec: TaskSpec, state: Arrays, dtypes: Mapping[str, np.dtype[Any]] = MappingProxyType({})
) -> dict[str, np.ndarray]:
    """All inputs of one run: the step's own, constants and optional inputs that it lacks, and the state (zeros where
    there is none yet).

    `dtypes` of the network's inputs; a constant without one is an integer where its value is.
    """
    inputs = with_defaults(step, spec)
    for name, value in spec.constants.items():
        if name not in inputs:
            dtype = dtypes.get(name) or (np.int64 if float(value).is_integer() else np.float32)
            inputs[name] = np.array(value, dtype)
    for pair in spec.state:
        known = state.get(pair.input)
        inputs[pair.input] = zero_state(pair) if known is None else known
    return inputs


def next_state(outputs: Arrays, spec: TaskSpec) -> dict[str, np.ndarray]:
    """The state after a run, by the name of the input that takes it."""
    return {pair.input: np.asarray(outputs[pair.output]) for pair in spec.state}


def run_steps(
    decoded: Decoded, spec: TaskSpec, infer: Infer, state: Arrays | None = None
) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Run all steps in order, handing the state on; returns the outputs per step and the last state.

    For offline use.
    """
    held: dict[str, np.ndarray] = dict(state or {})
    outputs: list[dict[str, np.ndarray]] = []
    for step in decoded.steps:
        outputs.append(dict(infer(step_inputs(step, spec, held))))
        held = next_state(outputs[-1], spec)
    return outputs, held


def number(spec: TaskSpec, name: str, default: float) -> float:
    """A number of `spec.params`. Raises: BadMetadata where it is a word."""
    stated = spec.params.get(name, default)
    try:
        found = float(stated)
    except ValueError:
        found = nan
    if not isfinite(found):
        raise BadMetadata(reason=f"params.{name} must be a number, not {stated!r}")
    return found


def word(spec: TaskSpec, name: str, default: str) -> str:
    """A word of `spec.params`."""
    return str(spec.params.get(name, default))


def label_of(spec: TaskSpec, index: int, default: str = "") -> str:
    """The label of a class; its number as text where the tenant named none."""
    if 0 <= index < len(spec.labels):
        return spec.labels[index]
    return default or str(index)
