"""Cuts a network for kinds of processors that do not run all of it (Band §4.2), when its variants have been measured.

Children take it apart, ask each kind for each sort of operator, and write the parts; then each part is prepared, tried
and compared on each of its kinds. Only the largest part of a kind is timed; the others are estimated from it (§4.3.2).
What does not load or computes something else on a kind does not run there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from appliance.domain.catalogue import Precision, TaskSpec, Variant
from appliance.domain.errors import BadModel, LoadFailed, RunFailed
from appliance.domain.hardware import (
    CPU_KINDS,
    HALF_KINDS,
    MeasureCase,
    PreparedForm,
    ProcessorDescription,
    Reference,
    TriedForm,
)
from appliance.domain.parts import BatchTime, Cut, Part, PartProfile
from appliance.modelstore import arrays
from appliance.modelstore.importing.cases import CASES_BYTES_MAX, Axes
from appliance.modelstore.importing.dissection import Whole, in_parts
from appliance.modelstore.importing.prepared import part_file
from appliance.modelstore.importing.profiling import DIFFERENCE_MAX, DIFFERENCE_MAX_OTHERS
from appliance.modelstore.importing.tools import Tools
from appliance.modelstore.orders import CutMade, CutUnit, Dissected
from appliance.modelstore.store.disk import remove
from appliance.policies.dispatch.estimates import ACCELERATOR_PER_BYTE, CPU_PER_BYTE, Work, estimated_ms

_WEIGHTS = "model.bin"


@dataclass(slots=True)
class _OnKind:
    """A kind of processor with what was found of the parts on it, by their numbers."""

    processor: ProcessorDescription
    forms: dict[int, PreparedForm] = field(default_factory=dict)
    """Of those that run there so far."""
    trials: dict[int, TriedForm] = field(default_factory=dict)
    largest: CutUnit | None = None
    """Of those, the one that is timed."""
    times: tuple[BatchTime, ...] = ()

    @property
    def per_byte(self) -> float:
        """What moving a byte counts for."""
        return CPU_PER_BYTE if self.processor.kind in CPU_KINDS else ACCELERATOR_PER_BYTE

    def times_of(self, unit: CutUnit) -> tuple[BatchTime, ...]:
        """As measured or estimated."""
        assert self.largest is not None, "it was timed"
        if unit is self.largest:
            return self.times
        part, largest = _work(unit), _work(self.largest)
        return tuple(
            BatchTime(row.batch, round(estimated_ms(part, largest, row.p50_ms, self.per_byte), 4)) for row in self.times
        )


class Cutting:
    """One content on its way into parts; `cut` is called once."""

    def __init__(
        self,
        tools: Tools,
        measured: Sequence[tuple[Variant, TaskSpec, Axes]],
        source: Path,
        on_step: Callable[[str, str], None] = lambda doing, step: None,
    ) -> None:
        """`measured`: the variants on it, which share its parts. `on_step` is told what begins: `compiling` or
        `measuring`, and which step of that, for a person.
        """
        self._tools = tools
        self._on_step = on_step
        self._variant, task, axes = max(measured, key=lambda one: (one[0].height or 0, one[0].width or 0))
        self._whole = Whole(self._variant, task, axes, source)
        self._content = self._variant.content_sha256
        self._kinds = [_OnKind(processor) for processor in tools.builds.kinds]
        self._folder = Path()
        self._batches: list[int] = []

    async def cut(self) -> Cut:
        """Its parts, which serve from here on, or why it stays whole; all of it takes no longer than any one child may.

        Raises: StorageFull, NotConfined; TimeoutError.
        """
        async with asyncio.timeout(self._tools.options.limits.wall_s):
            return await self._cut()

    async def _cut(self) -> Cut:
        asked = self._tools.builds.asked
        self._on_step("compiling", "taking it apart")
        self._folder = await self._tools.builds.begin_cut(self._content)
        try:
            made, self._batches = await in_parts(
                self._whole, self._folder, self._kinds_of, self._tools.stages, self._tools.options
            )
            if not made.units:
                return Cut(asked, reason=made.reason)
            self._check(made)
            await self._prepare_and_try(made)
            await self._time(made)
            if not any(kind.forms for kind in self._kinds[1:]):
                return Cut(asked, reason="no part of it runs on another kind and computes the same there")
            parts = tuple(self._part(number, unit) for number, unit in enumerate(made.units))
            names = [_WEIGHTS, *(part_file(number) for number in range(len(parts)))]
            if not await asyncio.to_thread((self._folder / _WEIGHTS).exists):  # so small that each part has its own
                names.remove(_WEIGHTS)
            await self._tools.builds.keep_parts(self._content, self._folder, names)
            for kind in self._kinds:
                for form in kind.forms.values():
                    await self._tools.builds.keep(form)
            return Cut(asked, parts)
        except (BadModel, LoadFailed, RunFailed) as error:
            return Cut(asked, reason=error.reason)
        finally:
            for kind in self._kinds:
                for form in kind.forms.values():
                    await asyncio.shield(self._tools.builds.discard(form))
            await asyncio.shield(asyncio.to_thread(remove, self._folder))

    # -- into parts ----------------------------------------------------------------------------------------------------

    def _check(self, made: CutMade) -> None:
        """Raises: BadModel unless the parts fit together, whatever the child says: they run inside the service."""
        there = {tensor.name for tensor in self._variant.inputs}
        for unit in made.units:
            if not there.issuperset(unit.inputs):
                raise BadModel(reason="its parts do not fit together")
            there |= set(unit.outputs)
        if not there.issuperset(tensor.name for tensor in self._variant.outputs):
            raise BadModel(reason="its parts do not compute all of its outputs")
        names = [Path(unit.path).name for unit in made.units]
        if names != [part_file(number) for number in range(len(names))]:
            raise BadModel(reason="its parts are not where they should be")

    async def _kinds_of(self, found: Dissected) -> tuple[tuple[str, ...], ...]:
        """Of each operator: the first kind runs all, others what they were asked for."""
        taken: dict[str, Sequence[bool]] = {}
        for kind in self._kinds[1:]:
            one = kind.processor
            self._on_step("compiling", f"asking {one.kind} for {len(found.probes)} sorts of operators")
            taken[one.kind] = await self._tools.measure.supported(found.probes, one.name)
        self._on_step("compiling", "cutting it")
        first = self._kinds[0].processor.kind
        return tuple(
            (
                first,
                *(
                    kind
                    for kind, can in taken.items()
                    if operator.probes is not None and all(can[probe] for probe in operator.probes)
                ),
            )
            for operator in found.operators
        )

    # -- on each kind --------------------------------------------------------------------------------------------------

    async def _prepare_and_try(self, made: CutMade) -> None:
        """Raises: LoadFailed, RunFailed where the first kind does not run a part."""
        cases = [(await asyncio.to_thread(_cases, unit, made.feeds[:1], [1]))[0] for unit in made.units]
        for kind in self._kinds:
            is_first = kind is self._kinds[0]
            sources = {
                number: Path(unit.path) for number, unit in enumerate(made.units) if kind.processor.kind in unit.kinds
            }
            if not sources:
                continue
            builds = self._tools.builds
            self._on_step("compiling", f"{len(sources)} parts for {kind.processor.kind}")
            forms = await builds.prepare_parts(self._tools.measure, self._content, sources, kind.processor)
            # What has no form of its own would be compiled at each load.
            kind.forms = {number: form for number, form in forms.items() if is_first or form.optimised}
            if not kind.forms:
                continue
            numbers = list(kind.forms)
            self._on_step("measuring", f"trying {len(numbers)} parts on {kind.processor.kind}")
            asked = [
                (kind.forms[number], cases[number], None if is_first else self._reference(made, number, kind))
                for number in numbers
            ]
            try:
                trials = await self._tools.measure.tried(asked, kind.processor.name)
            except LoadFailed:
                if is_first:
                    raise
                trials = tuple(TriedForm(reason="trying it ended its process") for _ in numbers)
            await self._take(kind, dict(zip(numbers, trials, strict=True)))

    def _reference(self, made: CutMade, number: int, kind: _OnKind) -> Reference:
        is_quantised = any("Quantize" in name or "QLinear" in name for unit in made.units for name in unit.op_types)
        precision = Precision.INT8 if is_quantised else self._variant.precision
        difference_max = DIFFERENCE_MAX.get(precision, DIFFERENCE_MAX_OTHERS)
        if kind.processor.kind in HALF_KINDS:
            difference_max = max(difference_max, DIFFERENCE_MAX[Precision.FP16])
        return Reference(self._kinds[0].forms[number], difference_max)

    async def _take(self, kind: _OnKind, trials: Mapping[int, TriedForm]) -> None:
        """Raises: RunFailed where the first kind does not run a part."""
        for number, trial in trials.items():
            if not trial.reason:
                kind.trials[number] = trial
            elif kind is self._kinds[0]:
                raise RunFailed(variant_id=self._variant.id, reason=trial.reason)
            else:
                await self._give_up(kind, number, trial.reason)

    async def _give_up(self, kind: _OnKind, number: int, reason: str) -> None:
        """A part does not run on that kind."""
        form = kind.forms.pop(number)
        await self._tools.builds.reject(form, reason)
        await self._tools.builds.discard(form)

    async def _time(self, made: CutMade) -> None:
        """The largest part of each kind, by batch (BA-18); one that computes something else in a larger batch is given
        up, and the next one is the largest.

        Raises: LoadFailed, RunFailed where that is the first kind.
        """
        for kind in self._kinds:
            while kind.forms and kind.largest is None:
                number = max(kind.forms, key=lambda one: _work(made.units[one]).weight(kind.per_byte))
                try:
                    await self._time_largest(kind, made, number)
                except (LoadFailed, RunFailed) as error:
                    if kind is self._kinds[0]:
                        raise
                    await self._give_up(kind, number, error.reason)

    async def _time_largest(self, kind: _OnKind, made: CutMade, number: int) -> None:
        unit = made.units[number]
        self._on_step("measuring", f"timing the largest part on {kind.processor.kind}")
        cases = await asyncio.to_thread(_cases, unit, made.feeds, self._batches)
        reference = None if kind is self._kinds[0] else self._reference(made, number, kind)
        form, name = kind.forms[number], kind.processor.name
        rows = await self._tools.measure.times(form, name, cases, reference)
        kind.largest, kind.times = unit, tuple(BatchTime(row.batch, row.p50_ms) for row in rows)

    def _part(self, number: int, unit: CutUnit) -> Part:
        return Part(
            operators=unit.operators,
            op_types=unit.op_types,
            inputs=unit.inputs,
            outputs=unit.outputs,
            size_bytes=unit.size_bytes,
            flops=unit.flops,
            tensor_bytes=unit.tensor_bytes,
            profiles=tuple(
                PartProfile(
                    kind=kind.processor.kind,
                    times=kind.times_of(unit),
                    is_measured=unit is kind.largest,
                    # Its weights at least, whatever a measurement on a busy machine has seen.
                    resident_bytes=max(kind.trials[number].resident_bytes, unit.size_bytes),
                    peak_bytes=max(kind.trials[number].peak_bytes, unit.size_bytes),
                    asleep_bytes=kind.trials[number].asleep_bytes,
                )
                for kind in self._kinds
                if number in kind.forms
            ),
        )


def _work(unit: CutUnit) -> Work:
    return Work(unit.flops, unit.tensor_bytes)


def _cases(unit: CutUnit, feeds: Sequence[str], batches: Sequence[int]) -> list[MeasureCase]:
    """What goes into a part, by batch; large ones are left out, for they pass through the service.

    Raises: BadModel where the child that cut it has not written that.
    """
    cases: list[MeasureCase] = []
    for file, batch in zip(feeds, batches, strict=True):
        try:
            inputs = arrays.load(file, unit.inputs)
        except ValueError as error:
            raise BadModel(reason=f"its parts were not run: {error}") from None
        if cases and sum(array.nbytes for array in inputs.values()) > CASES_BYTES_MAX:
            break
        cases.append(MeasureCase(batch, inputs))
    return cases
