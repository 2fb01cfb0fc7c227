"""Which build answers a request: the variants that may, the one of them that is in memory, or the one that is loaded
for it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from appliance.clock import Clock
from appliance.domain.errors import (
    ApplianceError,
    BadTensor,
    DeadlineExceeded,
    LoadFailed,
    OutOfMemory,
)
from appliance.domain.request import Request
from appliance.policies.limits.requests import is_too_late
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.memory.room import Asked, NoRoomYet
from appliance.runtime.residency.loop import ResidencyLoop
from appliance.runtime.residency.refusals import Refusals
from appliance.runtime.servable import Servable
from appliance.runtime.serving.admission import check_outputs, check_tensors
from appliance.runtime.serving.job import too_late
from appliance.runtime.serving.room_queue import RoomQueue

_NEVER_NS = 1 << 63

Placed = tuple[Servable, LoadedBuild, bool, int, int]
"""A pinned build for a request: (servable, build, warm, nanoseconds of loading, nanoseconds of waking)."""


@dataclass(slots=True)
class _Tried:
    """What came of the candidates of a request, by build."""

    refused: dict[str, Servable] = field(default_factory=dict)
    """There was no room."""
    failures: dict[str, ApplianceError] = field(default_factory=dict)
    """They are not tried again."""


class Placement:
    """Puts requests on builds; whoever is given one must unpin it. Event-loop thread only."""

    def __init__(
        self, clock: Clock, catalogue: Catalogue, memory: MemoryManager, residency: ResidencyLoop, refusals: Refusals
    ) -> None:
        self._clock = clock
        self._catalogue = catalogue
        self._memory = memory
        self._residency = residency
        self._refusals = refusals
        self._queue = RoomQueue(memory)
        self._wakes: set[asyncio.Task[None]] = set()
        self.on_overflow: Callable[[Servable], None] = lambda servable: None
        """Told what is to serve a request that is put on another kind of processor, for it is not there."""

    def candidates(self, request: Request, entry: Entry) -> list[Servable]:
        """Variants that may answer, most wanted first.

        Raises: BadTensor, UnknownVariant, ModelUnavailable, VariantQuarantined.
        """
        if request.variant is not None:
            named = self._catalogue.servable(entry, request.variant)
            _check(request, named)
            return [named]
        self._catalogue.most_wanted(entry)
        fitting: list[Servable] = []
        misfit: BadTensor | None = None
        for servable in entry.order:
            try:
                _check(request, servable)
                fitting.append(servable)
            except BadTensor as error:
                misfit = misfit or error
        if not fitting and misfit is not None:
            try:
                raise misfit
            finally:
                del misfit  # it holds this frame, which would hold it, and so the request
        return fitting

    def pin_resident(self, request: Request, entry: Entry) -> Placed | None:
        """The most wanted variant that may answer and is in memory, pinned.

        None: there is none; `candidates` says which may answer, or why none does.
        """
        variant = request.variant
        for servable in entry.order if variant is None else filter(None, (entry.servables.get(variant),)):
            if self._memory.is_resident(servable.build_id) and _fits(request, servable):
                build = self._memory.pin_resident(servable.build_id)
                if build is not None:
                    return servable, build, not request.began_cold, 0, 0
            whole = servable.whole
            if whole is not None and self._memory.is_resident(whole.build_id) and _fits(request, whole):
                build = self._memory.pin_resident(whole.build_id)
                if build is not None:
                    return whole, build, not request.began_cold, 0, 0
            for other in servable.overflow if whole is None else whole.overflow:
                if self._memory.is_resident(other.build_id) and _fits(request, other):
                    build = self._memory.pin_resident(other.build_id)
                    if build is not None:
                        self.on_overflow(servable if whole is None else whole)
                        return other, build, not request.began_cold, 0, 0
        return None

    async def load(self, request: Request, entry: Entry, candidates: list[Servable]) -> Placed:
        """The most wanted candidate that finds room, loaded and pinned; the whole of one whose parts do not come.

        Where none finds room all of them are tried again, by the order that holds then, whenever memory has changed.

        Raises: OutOfMemory, where the deadline comes before there is room, too; LoadFailed, DeadlineExceeded,
        ShuttingDown.
        """
        warm = not request.began_cold and self._is_warm(entry)
        start_ns = self._clock.now_ns()
        candidates = _distinct_builds(candidates)
        in_time = self._in_time(request, candidates)
        if not in_time:
            raise self._too_late(request, candidates)
        until_ns = start_ns + self._memory.wait_ns_max
        if request.drop_ns is not None:
            until_ns = min(until_ns, request.drop_ns)
        tried = _Tried()
        is_first = False
        while in_time:
            changes = self._memory.changes
            ordered = in_time if warm else self._residency.order(request.application_id, in_time, start_ns)
            forms = {form.build_id: form for servable in ordered for form in servable.forms}
            try:
                servable, build = await self._first_with_room(request, forms, start_ns, tried)
            except NoRoomYet as full:
                again_ns = min(full.again_ns, until_ns)
            else:
                took_ns = self._clock.now_ns() - start_ns
                return servable, build, warm, *((0, took_ns) if build.is_woken else (took_ns, 0))
            is_first = await self._queue.turn(
                tuple(sorted(forms)),
                changes,
                again_ns,
                is_first=is_first,
                is_there=partial(self._is_coming, forms),
            )
            if self._clock.now_ns() >= until_ns:
                break
            in_time = self._in_time(request, candidates)
        raise self._refusal(request, tried)

    async def _first_with_room(
        self, request: Request, servables: Mapping[str, Servable], start_ns: int, tried: "_Tried"
    ) -> tuple[Servable, LoadedBuild]:
        """The first of them, by build, that finds room now, loaded and pinned.

        Raises: NoRoomYet where one may find room later; else as `load`.
        """
        again_ns = _NEVER_NS
        left = [build_id for build_id in servables if build_id not in tried.failures]
        for place, build_id in enumerate(left, 1):
            servable = servables[build_id]
            try:
                return servable, await self._pin(servable, request.drop_ns, Asked(start_ns, left[place:]))
            except NoRoomYet as full:
                tried.refused[build_id] = servable
                again_ns = min(again_ns, full.again_ns)
            except OutOfMemory as error:
                tried.refused[build_id] = servable
                if not error.can_fit:
                    tried.failures[build_id] = error
            except LoadFailed as error:
                tried.refused.pop(build_id, None)
                tried.failures[build_id] = error
            except DeadlineExceeded:
                raise self._too_late(request, [servable]) from None
        raise self._refusal(request, tried) if again_ns == _NEVER_NS else NoRoomYet(again_ns)

    def _refusal(self, request: Request, tried: "_Tried") -> ApplianceError:
        """What a request is told of which no candidate could be loaded."""
        if tried.refused:
            return self._refusals.of([*tried.refused.values()], request.tenant)
        return next(reversed(tried.failures.values()))

    def wake_ahead(self, entry: Entry, variant: str | None) -> bool:
        """Wake what a request will want, in the background, before its body is there; whether it began cold.

        `variant`: that it names, if any. What must be loaded is left to the request itself: its head is no reason to
        spend that much.
        """
        wanted = [*(entry.order if variant is None else filter(None, (entry.servables.get(variant),)))]
        for servable in wanted:  # a loop: nearly always the first one is there
            if self._memory.is_resident(servable.build_id):
                return False
        builds = _distinct_builds(wanted)
        is_coming = any(self._memory.is_loading(s.build_id) for s in builds)
        if not is_coming and any(self._memory.is_asleep(s.build_id) for s in builds):
            first = self._residency.order(entry.application.id, builds, self._clock.now_ns())[0]
            if self._memory.is_asleep(first.build_id):
                task = asyncio.create_task(self._wake(first), name=f"wake {first.build_id}")
                self._wakes.add(task)
                task.add_done_callback(self._wakes.discard)
        return not self._is_warm(entry)

    async def _wake(self, servable: Servable) -> None:
        with suppress(ApplianceError, NoRoomYet):  # the request finds out itself
            self._memory.unpin(await self._pin(servable, None, Asked(self._clock.now_ns())))

    def _is_coming(self, builds: Iterable[str]) -> bool:
        """Whether one of them is in memory, or on its way there."""
        return any(self._memory.is_resident(build) or self._memory.is_loading(build) for build in builds)

    def _is_warm(self, entry: Entry) -> bool:
        return any(self._memory.is_resident(build) for s in entry.servables.values() for build in s.builds)

    def _in_time(self, request: Request, candidates: list[Servable]) -> list[Servable]:
        """Those whose run alone could end before the deadline: for the others no load is begun."""
        drop_ns = request.drop_ns
        if drop_ns is None:
            return candidates
        now_ns = self._clock.now_ns()
        return [s for s in candidates if not is_too_late(now_ns, s.expected_of(request.inputs, now_ns), drop_ns)]

    def _too_late(self, request: Request, candidates: Sequence[Servable]) -> DeadlineExceeded:
        now_ns = self._clock.now_ns()
        expected = [s.expected_of(request.inputs, now_ns) for s in candidates]
        return too_late(request, min((ns for ns in expected if ns is not None), default=None), now_ns)

    async def pin(self, servable: Servable, tenant: str, deadline_ns: int | None = None) -> LoadedBuild:
        """A build in memory for a tenant, loaded if need be.

        Raises: OutOfMemory, LoadFailed, DeadlineExceeded, ShuttingDown.
        """
        try:
            return await self._pin(servable, deadline_ns)
        except OutOfMemory:
            raise self._refusals.of([servable], tenant) from None

    async def _pin(self, servable: Servable, deadline_ns: int | None, asked: Asked | None = None) -> LoadedBuild:
        return await self._memory.pin(
            servable.build_id, servable.resident_bytes, servable.peak_bytes, deadline_ns, asked=asked
        )

    def preferred(self, entry: Entry, variant: str | None) -> Servable:
        """What a request for this variant, or for any, would get now.

        Raises: UnknownVariant, ModelUnavailable, VariantQuarantined.
        """
        if variant is not None:
            return self._catalogue.servable(entry, variant)
        most_wanted = self._catalogue.most_wanted(entry)
        return next((s for s in entry.order if self._memory.is_resident(s.build_id)), most_wanted)


def _fits(request: Request, servable: Servable) -> bool:
    try:
        _check(request, servable)
    except BadTensor:
        return False
    return True


def _check(request: Request, servable: Servable) -> None:
    check_tensors(request.inputs, servable)
    if request.outputs is not None:
        check_outputs(request.outputs, servable)


def _distinct_builds(candidates: list[Servable]) -> list[Servable]:
    """Rungs of a ladder share a build: trying it once is enough."""
    first: dict[str, Servable] = {}
    for servable in candidates:
        first.setdefault(servable.build_id, servable)
    return list(first.values())
