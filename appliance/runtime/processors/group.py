"""Port `Processor` over several kinds that share cores: each build runs on the kind that it is prepared for, and never
more run at once than there are workers, for the group is one processor to whoever hands out runs.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm, ProcessorDescription, ProcessorStatus
from appliance.domain.request import Tensors
from appliance.domain.states import ProcessorState
from appliance.runtime.ports import Processor


class InService(Processor, Protocol):
    """A processor whose builds live in the service: the port, and what a guard and the box ask of it besides."""

    async def fetch(self, handle: Any) -> None:
        """Read the file of a build that is about to wake, wherever that lives."""
        ...

    def close(self) -> None: ...


class MayGo(InService, Protocol):
    """One that takes no runs for a while, or for good, without the box."""

    @property
    def is_serving(self) -> bool: ...

    def status(self) -> ProcessorStatus: ...


@dataclass(slots=True)
class OnKind:
    """A build and the processor that it is on."""

    processor: InService
    handle: Any
    build_id: str
    lease: Any = None

    @property
    def file(self) -> Any:
        """Where its weights are mapped from, None where they are not."""
        return getattr(self.handle, "file", None)


class ProcessorGroup:
    """The first one's name and workers are those of the group. It serves as long as the box does; others may come and
    go.
    """

    def __init__(self, first: InService, others: Sequence[MayGo] = ()) -> None:
        self.first = first
        self._others = tuple(others)
        self._kinds: dict[str, InService] = {one.describe().kind: one for one in (first, *others)}

    def describe(self) -> ProcessorDescription:
        return self.first.describe()

    def describe_all(self) -> tuple[ProcessorDescription, ...]:
        """Each kind, the first one first."""
        return tuple(processor.describe() for processor in self._kinds.values())

    def away(self) -> frozenset[str]:
        """Kinds that take no runs now."""
        return frozenset(one.describe().kind for one in self._others if not one.is_serving)

    def statuses(self, runs: int, busy_ms: float) -> tuple[ProcessorStatus, ...]:
        """Of each kind, the first one first. `runs` and `busy_ms` of all together: what the others have not had of it
        was the first one's.
        """
        others = [one.status() for one in self._others]
        runs -= sum(one.runs for one in others)
        busy_ms -= sum(one.busy_ms for one in others)
        first = ProcessorStatus(self.describe(), ProcessorState.SERVING, "", max(0, runs), max(0.0, busy_ms))
        return (first, *others)

    async def load(self, form: PreparedForm) -> OnKind:
        processor = self._kinds.get(form.kind)
        if processor is None:
            raise LoadFailed(build_id=form.build_id, reason=f"there is no processor of kind {form.kind!r}")
        return OnKind(processor, await processor.load(form), form.build_id)

    def run(
        self, handle: OnKind, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> Awaitable[dict[str, Any]]:
        return handle.processor.run(handle.handle, inputs, outputs, deadline_ns=deadline_ns)

    def run_rows(
        self,
        handle: OnKind,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> Awaitable[list[dict[str, Any]]]:
        return handle.processor.run_rows(handle.handle, requests, counts, outputs, deadline_ns=deadline_ns)

    def run_inline(self, handle: OnKind, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        return handle.processor.run_inline(handle.handle, inputs, outputs)

    async def unload(self, handle: OnKind) -> None:
        await handle.processor.unload(handle.handle)

    def can_sleep(self, handle: OnKind) -> bool:
        return handle.processor.can_sleep(handle.handle)

    async def sleep(self, handle: OnKind) -> int:
        return await handle.processor.sleep(handle.handle)

    async def wake(self, handle: OnKind) -> None:
        await handle.processor.wake(handle.handle)

    async def fetch(self, handle: Any) -> None:
        """Also of a build that is in a guard: the page cache is everybody's."""
        await (handle.processor.fetch(handle.handle) if isinstance(handle, OnKind) else self.first.fetch(handle))

    async def read_ahead(self, handle: Any) -> None:
        """Also of a build that is in a guard: the page cache is everybody's."""
        own = isinstance(handle, OnKind)
        await (handle.processor.read_ahead(handle.handle) if own else self.first.read_ahead(handle))

    def wake_ns(self, handle: OnKind) -> int:
        return handle.processor.wake_ns(handle.handle)

    def close(self) -> None:
        for processor in self._kinds.values():
            processor.close()
