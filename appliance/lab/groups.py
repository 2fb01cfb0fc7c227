"""Several emulated processors as the engine has real ones: those on the same cores are one group to whoever hands out
runs, a build is loaded once for all processors of a kind, and lost with the last of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.names import kind_of
from appliance.domain.request import Tensors
from appliance.lab.processors import EmulatedProcessor, Handle
from appliance.runtime.assembly import RuntimeParts
from appliance.runtime.ports import RunGroup


@dataclass(frozen=True, slots=True)
class Cores:
    """Processors that share cores, or one by itself: so many runs at once, and how fast it is beside the first one of
    its kind.
    """

    processors: tuple[EmulatedProcessor, ...]
    workers: int
    speed: float = 1.0


class EmulatedGroups:
    """Port `Processor` over all of them."""

    def __init__(self, cores: Sequence[Cores]) -> None:
        """The first one's first processor is the box's first, whose kind runs every network."""
        self._cores = tuple(cores)
        self.processors = tuple(one for each in cores for one in each.processors)
        self._of_kind: dict[str, list[EmulatedProcessor]] = {}
        for one in self.processors:
            self._of_kind.setdefault(one.describe().kind, []).append(one)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The first one's first."""
        return tuple(self._of_kind)

    def groups(self) -> tuple[RunGroup, ...]:
        """Who takes runs at the same time. What a kind takes in its second group is learnt there."""
        found, known = [], set[str]()
        for each in self._cores:
            described = [one.describe() for one in each.processors]
            name = described[0].name
            kinds = {one.kind: name if one.kind in known else "" for one in described}
            known |= kinds.keys()
            runs, is_serving = _Runs(each.processors), partial(_is_serving, each.processors)
            found.append(RunGroup(name, each.workers, runs, kinds, each.speed, is_serving))
        return tuple(found)

    def follow(self, core: RuntimeParts) -> None:
        """Processors have come or gone: what serves where, and what is of no use in memory any more."""
        away = frozenset(kind for kind, own in self._of_kind.items() if not _is_serving(own))
        core.catalogue.leave_out(away)
        for kind in away:
            for build_id in self._of_kind[kind][0].memory.lose(kind):
                core.memory.lost(build_id)
        core.engine.look_again()
        core.dismiss_unused()

    # -- the port ------------------------------------------------------------------------------------------------------

    def describe(self) -> ProcessorDescription:
        return self.processors[0].describe()

    async def load(self, form: PreparedForm) -> Handle:
        return await self._one(form.build_id).load(form)

    async def run(
        self, handle: Handle, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> dict[str, Any]:
        return await self._one(handle.build_id).run(handle, inputs, outputs, deadline_ns=deadline_ns)

    async def run_rows(
        self,
        handle: Handle,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> list[dict[str, Any]]:
        return await self._one(handle.build_id).run_rows(handle, requests, counts, outputs, deadline_ns=deadline_ns)

    def run_inline(self, handle: Handle, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        return self._one(handle.build_id).run_inline(handle, inputs, outputs)

    async def unload(self, handle: Handle) -> None:
        await self._one(handle.build_id).unload(handle)

    def can_sleep(self, handle: Handle) -> bool:
        return self._one(handle.build_id).can_sleep(handle)

    async def sleep(self, handle: Handle) -> int:
        return await self._one(handle.build_id).sleep(handle)

    async def wake(self, handle: Handle) -> None:
        await self._one(handle.build_id).wake(handle)

    async def read_ahead(self, handle: Handle) -> None:
        await self._one(handle.build_id).read_ahead(handle)

    def wake_ns(self, handle: Handle) -> int:
        return self._one(handle.build_id).wake_ns(handle)

    def _one(self, build_id: str) -> EmulatedProcessor:
        """Of the kind that a build is for, one that is there."""
        own = self._of_kind[kind_of(build_id)]
        return next((one for one in own if not one.ailments.losses), own[0])


class _Runs:
    """Port `Runs` of a group: each run on the processor of the build's kind that runs least."""

    def __init__(self, processors: Sequence[EmulatedProcessor]) -> None:
        self._processors = processors

    async def run(
        self, handle: Handle, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> dict[str, Any]:
        return await self._for(handle).run(handle, inputs, outputs, deadline_ns=deadline_ns)

    async def run_rows(
        self,
        handle: Handle,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> list[dict[str, Any]]:
        return await self._for(handle).run_rows(handle, requests, counts, outputs, deadline_ns=deadline_ns)

    def _for(self, handle: Handle) -> EmulatedProcessor:
        kind = kind_of(handle.build_id)
        own = [one for one in self._processors if one.describe().kind == kind]
        return min(own, key=lambda one: (bool(one.ailments.losses), one.running))


def _is_serving(processors: Sequence[EmulatedProcessor]) -> bool:
    """Whether one of them is there."""
    return any(not one.ailments.losses for one in processors)
