"""Further kinds of processors for a network whose own one is taken for too long (overflow routing).

A network serves on one kind of processor, as one build. Where its requests wait for that while processors of another
kind idle, what they would have gained there is added up; when that is worth some loads, the build for the other kind is
loaded beside the first, and from then on the scheduler has both to choose from. It takes only memory that is free,
gives it back to whoever needs it, and leaves when nothing has run on it for a while. Where a network's own processors
are all throttled, the build for another one is loaded at once, so that those are spared.
"""

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import ApplianceError
from appliance.domain.request import Request
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.ports import RunGroup
from appliance.runtime.servable import Servable
from appliance.runtime.serving.job import Job

WORTH = 5
"""Loads that a build must have been worth of late before it is loaded: a burst that is over by then is no reason."""
HALF_LIFE_NS = 10 * NS_PER_S
IDLE_NS = 60 * NS_PER_S
"""What has run nothing for so long leaves."""
_PAUSE_NS = 60 * NS_PER_S
"""A load that has failed is not tried again for so long."""
_OWN_PAUSE_NS = NS_PER_S
"""The same of what is to serve."""
_IN_VAIN_MAX = 6
"""What was loaded in vain so often in a row is loaded once an hour."""
_KNOWN_MAX = 256


@dataclass(slots=True)
class _Sparing:
    """When a build was loaded last to spare a throttled processor."""

    at_ns: int
    in_vain: int
    """Such loads in a row since anything has run on it."""


class Overflow:
    """Event-loop thread only."""

    def __init__(
        self, clock: Clock, catalogue: Catalogue, memory: MemoryManager, groups: Sequence[RunGroup] = ()
    ) -> None:
        """`groups` of processors, where there are several."""
        self._clock = clock
        self._groups = tuple(groups)
        self._catalogue = catalogue
        self._memory = memory
        self._gains: dict[str, tuple[float, int]] = {}
        """Build → what it would have saved, in ns, and when that was last reckoned."""
        self._pauses: dict[str, int] = {}
        """Build → until when it is not loaded."""
        self._sparing: dict[str, _Sparing] = {}
        """By build."""
        self._used_ns: dict[str, int] = {}
        """Builds that were loaded for overflow → when one was last run, or loaded."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        memory.on_short.insert(0, self.give_way)

    def pinned(self, servable: Servable) -> list[tuple[Servable, LoadedBuild]]:
        """What else a request may run on now, pinned; the quickest kind first."""
        found = ((other, self._memory.pin_resident(other.build_id)) for other in servable.overflow)
        there = [(other, build) for other, build in found if build is not None]
        for other, _ in there:
            if other.build_id not in self._used_ns:  # it served, while another kind was away
                self._note(other.build_id)
        return there

    def bring(self, servable: Servable) -> None:
        """A request runs on a further kind, for what is to serve it is not there: that is loaded meanwhile."""
        now_ns = self._clock.now_ns()
        if now_ns >= self._pauses.get(servable.build_id, now_ns):
            self._begin(servable, now_ns + _OWN_PAUSE_NS)

    def spare(self, servable: Servable, request: Request) -> None:
        """A request is about to wait for what is to run on `servable`: where all processors that run it are throttled,
        the quickest build for others that would be in time is loaded meanwhile. Once in `_PAUSE_NS` at most, and ever
        more seldom where it leaves before anything has run on it: no wait of requests has shown that it is worth it.
        """
        if any(self._is_cool(at) for at in servable.places):
            return
        now_ns = self._clock.now_ns()
        for other in servable.overflow:
            if not any(self._is_cool(at) for at in other.places):
                continue
            there_ns = other.expected_of(request.inputs, now_ns)
            is_late = request.drop_ns is not None and now_ns + (there_ns or 0) > request.drop_ns
            if there_ns is None or is_late:
                continue
            if not self._memory.is_resident(other.build_id) and self._may_spare(other, now_ns):
                self._begin(other, now_ns + _PAUSE_NS)
            return

    def _is_cool(self, group: int) -> bool:
        """Whether a group of processors takes runs at its full speed."""
        return self._groups[group].is_serving() and not self._groups[group].is_throttled()

    @property
    def is_used(self) -> bool:
        """Whether anything is in memory for it."""
        return bool(self._used_ns)

    def ended(self, servable: Servable, job: Job, since_ns: int, idle: AbstractSet[int]) -> None:
        """A request has had its turn, or has not waited for it: from `since_ns` on it waited for what is to run on
        `servable`. `idle`: groups of processors that had nothing to do then.
        """
        now_ns = self._clock.now_ns()
        if job.started_ns and job.build.build_id in self._used_ns:
            self._used_ns[job.build.build_id] = now_ns
            if (sparing := self._sparing.get(job.build.build_id)) is not None:
                sparing.in_vain = 0
        until_ns = job.started_ns or now_ns
        call = job.call
        if call is not None and call.company_by_ns is not None:  # until then it waited for others, on purpose
            since_ns = max(since_ns, min(call.company_by_ns, until_ns))
        if call is not None and call.behind_since_ns is not None:  # then it would have begun no sooner on any kind
            until_ns = max(since_ns, min(until_ns, call.behind_since_ns))
        # Who is kept waiting by a start that is reserved does count: another kind would have begun with it.
        wait_ns = until_ns - since_ns
        for other in servable.overflow:
            if self._memory.is_resident(other.build_id) or idle.isdisjoint(other.places):
                continue
            there_ns = other.expected_of(job.request.inputs, now_ns)
            if there_ns is not None and job.expected_ns is not None:
                self._gained(other, wait_ns - max(0, there_ns - job.expected_ns), now_ns)

    def give_way(self, missing_bytes: int) -> None:
        """Let builds go, the one that was used longest ago first, until so much is free, or will be with the end of
        their last runs.
        """
        there = (build.build_id for build in self._memory.residents())
        found = [build_id for build_id in there if self._catalogue.is_overflow(build_id)]
        for build_id in sorted(found, key=lambda one: (self._used_ns.get(one, 0), one)):
            if missing_bytes <= 0:
                return
            missing_bytes -= self._release(build_id)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _gained(self, other: Servable, gain_ns: int, now_ns: int) -> None:
        if gain_ns <= 0:
            return
        if len(self._gains) > _KNOWN_MAX:  # models come and go
            self._gains.clear()
            self._pauses.clear()
        before_ns, at_ns = self._gains.get(other.build_id, (0.0, now_ns))
        sum_ns = before_ns * 0.5 ** ((now_ns - at_ns) / HALF_LIFE_NS) + gain_ns
        self._gains[other.build_id] = sum_ns, now_ns
        load_ns = 0 if other.profile is None else other.profile.load_ms * NS_PER_MS
        if sum_ns > WORTH * load_ns and self._may_load(other, now_ns):
            del self._gains[other.build_id]
            self._begin(other, now_ns + _PAUSE_NS)

    def _may_load(self, other: Servable, now_ns: int) -> bool:
        """Whether nobody has to give way for it; a tenant with a ceiling has what it may have."""
        if now_ns < self._pauses.get(other.build_id, now_ns) or self._memory.is_bounded(other.build_id):
            return False
        return self._memory.need_bytes(other.build_id, other.need_bytes) <= self._memory.free_bytes

    def _may_spare(self, other: Servable, now_ns: int) -> bool:
        """Whether to load it to spare a throttled processor; it is counted."""
        before = self._sparing.get(other.build_id)
        if before is not None and now_ns < before.at_ns + (_PAUSE_NS << before.in_vain):
            return False
        if not self._may_load(other, now_ns):
            return False
        if len(self._sparing) > _KNOWN_MAX:  # models come and go
            self._sparing.clear()
        in_vain = 1 if before is None else min(before.in_vain + 1, _IN_VAIN_MAX)
        self._sparing[other.build_id] = _Sparing(now_ns, in_vain)
        return True

    def _begin(self, servable: Servable, again_ns: int) -> None:
        """Load it in the background; not once more before then, unless it comes."""
        self._pauses[servable.build_id] = again_ns
        task = asyncio.create_task(self._load(servable), name=f"overflow: load {servable.build_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, servable: Servable) -> None:
        build_id = servable.build_id
        try:
            build = await self._memory.pin(
                build_id, servable.resident_bytes, servable.peak_bytes, None, is_urgent=False
            )
        except ApplianceError:  # counted and announced by the memory manager
            return
        self._memory.unpin(build)
        self._pauses.pop(build_id, None)
        self._note(build_id)

    def _note(self, build_id: str) -> None:
        """It is used from now on."""
        self._used_ns[build_id] = self._clock.now_ns()
        self._look_later()

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_NS / NS_PER_S, self._look)

    def _look(self) -> None:
        """Whether some have had nothing to do."""
        self._timer = None
        before_ns = self._clock.now_ns() - IDLE_NS
        for build_id in [build_id for build_id, used_ns in self._used_ns.items() if used_ns <= before_ns]:
            self._release(build_id)
        if self._used_ns:
            self._look_later()

    def _release(self, build_id: str) -> int:
        """Let a build go, unless a variant serves on it; returns what that will free."""
        self._used_ns.pop(build_id, None)
        build = self._memory.build(build_id)
        if build is None or not self._memory.is_resident(build_id) or not self._catalogue.is_overflow(build_id):
            return 0
        self._memory.release(build_id)
        return build.resident_bytes
