"""A variant as it is served: what selection, residency and the engine go by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from appliance.domain.catalogue import Profile, RunBound, Shapes, TensorSpec, Variant
from appliance.domain.padding import Padding, Unfit
from appliance.domain.request import Request
from appliance.runtime.profiles.store import BuildTimes
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.served_parts import ServedParts
from appliance.tasks.datatypes import DTYPES

_ANY = (1 << 62,)
COUNTED_BYTES_MIN = 4_000_000
"""Runs that take less are not counted: the heap keeps as much anyway."""
LOAD_NS_PER_BYTE = 1.0
"""Nanoseconds that a load is assumed to take for each resident byte until it is measured."""


@dataclass(frozen=True, slots=True)
class InputSlot:
    """An input as admission checks it; `dtype` None = a type that numpy lacks, which the processor checks."""

    spec: TensorSpec
    dtype: np.dtype[Any] | None
    most: tuple[int, ...]
    """The largest size of each axis."""
    fixed: tuple[int, ...] | None
    """The only shape that it takes, which the import has run, an empty one, too; None where an axis is free."""
    fitting: set[tuple[int, ...]] = field(default_factory=set, compare=False)
    """Shapes that were found to fit: a few, which most requests have."""


@dataclass(frozen=True, slots=True)
class Servable:
    """A variant as it is served: what selection, residency and the engine go by."""

    variant: Variant
    build_id: str
    resident_bytes: int
    peak_bytes: int
    inputs: dict[str, InputSlot]
    output_names: frozenset[str]
    batched_input: str | None
    """The first input whose first axis is free, which counts the items of a request; None = a request is one item."""
    is_guarded: bool = False
    """It runs in a process of its owner, never on the event loop."""
    runs: tuple[RunBound, ...] = ()
    """What runs take, from the smallest shapes to the largest; empty where that was not measured."""
    is_inline: bool = False
    """Whether it may run on the event loop: the review at import has found nothing against it, and the first kind of
    processor computes it in the service. Of another kind nobody can say that its runs end.
    """
    is_of_free_size: bool = False
    """Whether its inputs differ in more than the number of items."""
    counted_bytes_max: int = 0
    """What its largest run takes; 0 where that is not worth counting."""
    profile: Profile | None = None
    """On the kind of processor that it serves on; until it is measured there, estimated by the run that the import has
    timed (`Variant.inspected_ms`); None where it has timed none.
    """
    together_max: int = 1
    """Items that requests may bring into one run together; 1 = they would influence one another, or gain nothing."""
    at_once_max: int | None = None
    """Runs of its build that pay at once on a processor; None: as many as that has workers."""
    mixes_tenants: bool = False
    """Whether requests of several tenants may share its runs. The import tries a few values; with others a graph can
    give one caller what another sent, so its owner must be trusted not to have made it for that.
    """
    times: BuildTimes | None = field(default=None, compare=False)
    """What runs take, as far as is known by now; None until measured."""
    places: Mapping[int, BuildTimes | None] = field(default_factory=dict, compare=False)
    """Of several groups of processors those that it runs on, by index, and what runs take there, as `times`; empty
    where there is one group.
    """
    usual_times: RunTimes | None = field(default=None, compare=False)
    """The same of inputs that differ in the number of items only; None where others may come, and until measured."""
    loss: float | None = None
    """Points that it may be behind the model's most accurate variant at 95 %; None = not known."""
    parts: ServedParts | None = field(default=None, compare=False)
    """In which it serves; None: whole."""
    whole: "Servable | None" = None
    """Of one in parts: what serves while these are not there."""
    overflow: tuple["Servable", ...] = ()
    """The same variant on further kinds of processors, whose groups do not run its own, the quickest kind first: what
    takes the requests that wait too long for that, while there is memory (`serving.overflow`).
    """
    padding: Padding | None = None
    """How inputs may be made larger; None = they may not."""
    unfit: Unfit = field(default_factory=Unfit, compare=False)
    """Steps within which they may not, as runs have shown."""
    goes_in_steps: bool = False
    """Whether inputs are padded also of a run that nobody shares: the first run of a size is slow where it serves."""

    @property
    def builds(self) -> tuple[str, ...]:
        """That requests may run on, the wanted one first."""
        if self.whole is None and not self.overflow:  # nearly always, and asked for each request
            return (self.build_id,)
        return tuple(one.build_id for one in self.loadable)

    @property
    def forms(self) -> tuple["Servable", ...]:
        """As which it may serve, the wanted one first; not what only takes its overflow."""
        return (self,) if self.whole is None else (self, self.whole)

    @property
    def loadable(self) -> tuple["Servable", ...]:
        """The same, and what takes their overflow."""
        return (*self.forms, *(one for form in self.forms for one in form.overflow))

    def stepped(self, request: Request) -> dict[str, tuple[int, ...]]:
        """Shapes at the end of the step of its inputs, within which it may run with others; its own where nothing of
        it may be padded.
        """
        padding = self.padding
        if padding is None or request.runs_alone or not (padding.is_exact or request.is_read):
            return request.shapes
        stepped = self.steps_of(request.shapes)
        return request.shapes if self.unfit and stepped in self.unfit else stepped

    def steps_of(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """The ends of the steps that inputs of these shapes are in."""
        most = {name: slot.most for name, slot in self.inputs.items()}
        return shapes if self.padding is None else self.padding.stepped(shapes, most)

    def run_bytes_of(self, shapes: Shapes) -> int:
        """What a run with inputs of these shapes takes beside the build; 0 where that is not worth counting, or nobody
        knows.
        """
        bound = self.bound_of(shapes) if self.counted_bytes_max else None
        return 0 if bound is None or bound.peak_bytes < COUNTED_BYTES_MIN else bound.peak_bytes

    def bound_of(self, shapes: Shapes) -> RunBound | None:
        """Of the smallest measured run that is no smaller than one with inputs of these shapes; None where nothing is
        known.
        """
        for bound in self.runs:
            if _is_within(shapes, bound.shapes):
                return bound
        return self.runs[-1] if self.runs else None

    def items_of(self, inputs: Mapping[str, Any]) -> int:
        """How many items a request carries."""
        tensor = None if self.batched_input is None else inputs.get(self.batched_input)
        return 1 if tensor is None else int(tensor.shape[0])

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def accuracy(self) -> float:
        """Points, 0 to 100."""
        return self.variant.accuracy_points

    @property
    def p99_ms(self) -> float | None:
        """P99 of a run of one item, in milliseconds, as the profile says; None without a profile."""
        return self.profile.latencies[0].p99_ms if self.profile and self.profile.latencies else None

    @property
    def p50_ms(self) -> float | None:
        """Median of a run of one item, in milliseconds, as the profile says; None without a profile. What runs have
        taken since does not enter: variants are compared by what was measured alike, and the one that serves is the
        only one that runs.
        """
        return self.profile.latencies[0].p50_ms if self.profile and self.profile.latencies else None

    @property
    def need_bytes(self) -> int:
        """What must be free for it to come in."""
        return max(self.resident_bytes, self.peak_bytes)

    def times_of(self, inputs: Mapping[str, Any], items: int) -> RunTimes | None:
        """What runs with such inputs, which hold so many items, take; None until measured."""
        return self.usual_times if self.times is None or not self.is_of_free_size else self.times.of(inputs, items)

    def part_times(self, group: int, number: int, inputs: Mapping[str, Any], items: int) -> RunTimes | None:
        """As `times_of`, of runs of one of its parts in a group of processors, by what goes into the network."""
        times = None if self.parts is None else self.parts.times.get((group, number))
        return None if times is None else times.of(inputs, items) if self.is_of_free_size else times.usual

    def expected_of(self, inputs: Mapping[str, Any], now_ns: int) -> int | None:
        """Median of a run with these inputs and no other beside it (the P99 would drop work that can still be in time);
        None until measured.
        """
        items = self.items_of(inputs)
        times = self.times_of(inputs, items)
        if times is None:
            return None
        elsewhere = (there.expected_ns(items, 1, now_ns) for there in self.times_by_place(inputs, items).values())
        return min(elsewhere, default=times.expected_ns(items, 1, now_ns))

    def times_by_place(self, inputs: Mapping[str, Any], items: int) -> dict[int, RunTimes]:
        """As `times_of`, on each group of processors that it runs on; empty where there is one group, and until
        measured.
        """
        return {
            place: times.of(inputs, items) if self.is_of_free_size else times.usual
            for place, times in self.places.items()
            if times is not None
        }


def slot_of(tensor: TensorSpec, largest: tuple[int, ...] | None) -> InputSlot:
    """Of an input whose largest shape is known, or not."""
    most = _ANY * len(tensor.shape) if largest is None else largest
    fixed = tensor.shape if all(side >= 0 for side in tensor.shape) else None
    return InputSlot(tensor, DTYPES.get(tensor.datatype), most, fixed)


def _is_within(shapes: Shapes, limits: Shapes) -> bool:
    for name, most in limits.items():
        for size, limit in zip(shapes.get(name, ()), most, strict=False):
            if size > limit:
                return False
    return True
