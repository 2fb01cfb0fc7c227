"""Has kinds of processors probed: before they take their first runs on this machine, and when they are lost until they
are back; and looks whether the cores of those are there that have some of their own. The box does not wait for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

from appliance.clock import NS_PER_S, Clock
from appliance.domain.hardware import ProcessorDescription
from appliance.domain.states import ProcessorState
from appliance.runtime.processors.member import RETRY_AFTER_S, Member

LOOK_S = 5.0
"""Between two looks at who does not serve, and at the cores."""
UNFIT_S = 600.0
"""From a failed probe to the next one of a kind that has not run yet: it seldom is fit later, and probing costs."""


class Passed(Protocol):
    """Which fingerprints a probe has passed on, kept over restarts."""

    def has(self, fingerprint: str) -> bool: ...

    def note(self, fingerprint: str, *, passed: bool) -> None: ...


class ProcessorMonitor:
    """Event-loop thread only."""

    def __init__(
        self,
        clock: Clock,
        members: Sequence[Member],
        probe: Callable[[ProcessorDescription], Awaitable[str]],
        passed: Passed,
        cores: Callable[[], Collection[int]] = frozenset,
    ) -> None:
        """`probe`: empty when a tiny network ran there, else why not. `cores` that are online and the box's now; asked
        where a member has some of its own.
        """
        self._cores = cores
        self._clock = clock
        self._members = members
        self._probe = probe
        self._passed = passed
        self._again_ns: dict[Member, int] = {}
        """When to probe it next."""
        self._probed: set[Member] = set()
        """Whose probe is under way."""

    def begin(self) -> None:
        """What has passed before on this very machine, with this very library, serves at once."""
        for member in self._members:
            if not member.is_serving and self._passed.has(member.described.fingerprint):
                member.serve()

    async def run(self) -> None:
        """Probe until cancelled, each in a task of its own: a probe may take minutes, and the cores are looked at
        meanwhile.
        """
        async with asyncio.TaskGroup() as probes:
            while self._members:
                for member in self._members:
                    cores = member.described.cores
                    gone = sorted(set(cores).difference(self._cores())) if cores else []
                    if gone:
                        member.lose(f"core {gone[0]} is offline")
                        self._again_ns[member] = 0  # as soon as it is back
                    elif not member.is_serving and member not in self._probed and self._is_due(member):
                        self._probed.add(member)
                        probes.create_task(self._look_at(member), name=f"probe {member.described.name}")
                await self._clock.sleep_until_ns(self._clock.now_ns() + int(LOOK_S * NS_PER_S))

    def _is_due(self, member: Member) -> bool:
        now_ns = self._clock.now_ns()
        if member.state is ProcessorState.LOST and member not in self._again_ns:
            self._again_ns[member] = now_ns + int(RETRY_AFTER_S * NS_PER_S)
        return member.is_clear and now_ns >= self._again_ns.get(member, 0)

    async def _look_at(self, member: Member) -> None:
        try:
            await self._probe_it(member)
        finally:
            self._probed.discard(member)

    async def _probe_it(self, member: Member) -> None:
        try:
            reason = await self._probe(member.described)
        except Exception as error:  # no folder, no memory for another process ...
            reason = f"it could not be probed: {error}"
        self._passed.note(member.described.fingerprint, passed=not reason)
        if not reason:
            self._again_ns.pop(member, None)
            member.serve()
        elif member.state is ProcessorState.LOST:
            self._again_ns[member] = self._clock.now_ns() + int(RETRY_AFTER_S * NS_PER_S)
        else:
            member.unfit(reason)
            self._again_ns[member] = self._clock.now_ns() + int(UNFIT_S * NS_PER_S)
