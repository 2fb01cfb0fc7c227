"""Port `Measure` without processes: figures follow from the file's size, prepared forms are copies."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from appliance.domain.catalogue import Latency, Profile, RunBound
from appliance.domain.errors import LoadFailed, RunFailed
from appliance.domain.hardware import Growth, MeasureCase, PreparedForm, Reference, TriedForm


async def at_once(processor: str) -> None:
    """Nothing comes before."""


class FakeMeasure:
    """Remembers what it was asked; `breaks_prepared` makes every prepared form crash."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.profiled: list[tuple[PreparedForm, list[MeasureCase]]] = []
        self.has_forms = True
        self.breaks_prepared = False
        self.breaks_all = False
        self.refused_runs = 0
        self.differs = False
        """What another kind of processor computes is something else."""
        self.takes: Callable[[str], bool] = lambda network: True
        """Whether the other kinds take a small network, by its path."""
        self.cannot_prepare: Callable[[str, str], bool] = lambda source, processor: False
        """Whether there is no form of a file on a processor."""
        self.reason = ""
        """Why; empty: nothing says."""
        self.references: list[Reference] = []
        """Of the profiles on other kinds than the first."""
        self.tried_forms: list[tuple[str, str, bool]] = []
        """Build, processor, and whether it was compared."""
        self.shared_rows_max = 1
        """Of every profile. Above 1, several runs at once were measured, too, of one item only: ..."""
        self.at_once: tuple[int, ...] = (2,)
        """... so many."""
        self.reduced_share, self.reduced_differs = 0.5, 0.0
        """Of forms in fewer bits: their run times against those of others, and what they compute differently."""
        self.before_prepare: Callable[[str], Awaitable[None]] = at_once
        self.before_profile: Callable[[str], Awaitable[None]] = at_once
        """Awaited with the kind of the processor: to wait, or to raise."""
        self.gate = asyncio.Event()
        """Profiles wait for it; set unless a test clears it."""
        self.gate.set()

    async def prepare(
        self, source: str, target_dir: str, processor: str, *, is_reduced: bool = False
    ) -> PreparedForm | None:
        await self.before_prepare(processor)
        self.prepared.append(source)
        if not self.has_forms or self.cannot_prepare(source, processor):
            if self.reason:
                raise LoadFailed(build_id=source, reason=self.reason)
            return None
        target = Path(target_dir) / "model.onnx"
        await asyncio.to_thread(shutil.copyfile, source, target)
        computes_in = "bf16" if is_reduced else ""
        size_bytes = target.stat().st_size
        return PreparedForm(target_dir, str(target), size_bytes, True, kind=processor, computes_in=computes_in)

    async def profile(
        self,
        form: PreparedForm,
        processor: str,
        cases: Sequence[MeasureCase],
        growth: Growth = Growth(),  # noqa: B008
        reference: Reference | None = None,
    ) -> Profile:
        await self.before_profile(processor)
        await self.gate.wait()
        self.profiled.append((form, list(cases)))
        if reference is not None:
            self.references.append(reference)
        if self.breaks_all or (self.breaks_prepared and form.optimised):
            raise LoadFailed(build_id=form.build_id, reason="exit status -11")
        if reference is not None and self.differs:
            raise RunFailed(variant_id=form.build_id, reason="output 'out' differs by 0.5 of what cpu computes")
        if self.refused_runs:
            self.refused_runs -= 1
            raise RunFailed(variant_id=form.build_id, reason="not made for this length")
        if form.computes_in and reference is not None and self.reduced_differs > reference.difference_max:
            raise RunFailed(variant_id=form.build_id, reason="output 'out' differs")
        size = Path(form.path).stat().st_size  # noqa: ASYNC240 - a test
        ms = size / 1e3 * (self.reduced_share if form.computes_in else 1.0)
        latencies = tuple(Latency(case.batch, case.batch * ms, case.batch * ms * 2) for case in cases)
        if self.shared_rows_max > 1:
            latencies += tuple(replace(latencies[0], concurrency=count) for count in self.at_once)
        base = {name: array.shape for name, array in cases[0].inputs.items()}
        runs = tuple(RunBound(shapes, 1.0, 0) for shapes in (base, *growth.steps))
        kind = form.kind if form.optimised else processor
        return Profile(
            processor,
            size,
            2 * size,
            1.0,
            2.0,
            latencies,
            growth.hazards,
            runs,
            kind=kind,
            shared_rows_max=self.shared_rows_max,
            computes_in=form.computes_in,
        )

    async def times(
        self, form: PreparedForm, processor: str, cases: Sequence[MeasureCase], reference: Reference | None
    ) -> tuple[Latency, ...]:
        return (await self.profile(form, processor, cases, reference=reference)).alone

    async def prepare_all(self, pairs: Sequence[tuple[str, str]], processor: str) -> list[PreparedForm | None]:
        reason, self.reason = self.reason, ""
        try:
            return [await self.prepare(source, target, processor) for source, target in pairs]
        finally:
            self.reason = reason

    async def supported(self, networks: Sequence[str], processor: str) -> tuple[bool, ...]:
        return tuple(self.takes(network) for network in networks)

    async def tried(
        self, forms: Sequence[tuple[PreparedForm, MeasureCase, Reference | None]], processor: str
    ) -> tuple[TriedForm, ...]:
        self.tried_forms += [(form.build_id, processor, reference is not None) for form, _case, reference in forms]
        return tuple(self._trial(form, reference) for form, _case, reference in forms)

    def _trial(self, form: PreparedForm, reference: Reference | None) -> TriedForm:
        if self.differs and reference is not None:
            return TriedForm(reason="output 'out' differs by 0.5 of what cpu computes")
        return TriedForm(form.size_bytes, 2 * form.size_bytes)
