"""What a request is told that found no room: the least it needs, whether that can ever fit, who holds the rest, and
when to come again.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from appliance.clock import NS_PER_S, Clock
from appliance.domain.errors import Blocker, CeilingReached, OutOfMemory, processes_beside
from appliance.domain.overhead import GUARDS
from appliance.domain.states import ResidencyState
from appliance.domain.units import BYTES_PER_MB
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.memory.room import Holding, Process, ResidentBuild
from appliance.runtime.residency.account import MemoryAccount
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.groups import VariantGroups
from appliance.runtime.residency.shares import Shares
from appliance.runtime.servable import Servable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A build or a process that found no room."""

    build_id: str
    """Empty for a process."""
    name: str
    tenant: str
    """The tenant whose memory the build or process takes."""
    own_bytes: int
    """Bytes that stay taken once the build is loaded, or the process runs."""
    charged_bytes: int
    """Bytes of the build and of the guard process started for the build."""
    need_bytes: int
    """Bytes that have to be free while the build loads, or the process begins."""
    begin_bytes: int
    """Bytes of processes that begin for a build."""
    can_fit: bool


_SOON_S = 1.0
"""When to come again where what blocks is over at any moment."""


class Refusals:
    """Looks at memory as it is when a request is refused; that is seldom, so nothing is kept.

    Event-loop thread only.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        catalogue: Catalogue,
        groups: VariantGroups,
        expectations: Expectations,
        shares: Shares,
        memory: MemoryManager,
        account: MemoryAccount,
        patience_ns: int | None,
    ) -> None:
        """`patience_ns`: after so much waiting those in their windows get smaller variants; None: they never do."""
        self._clock = clock
        self._catalogue = catalogue
        self._groups = groups
        self._expectations = expectations
        self._shares = shares
        self._memory = memory
        self._account = account
        self._patience_ns = patience_ns

    def of(self, refused: Sequence[Servable], tenant: str) -> OutOfMemory:
        """The error for a request of `tenant` that any of these variants would have answered; at least one."""
        least = min(refused, key=lambda s: (s.need_bytes, s.variant.name))
        begin_bytes = self._shares.processes_to_come(least.build_id)
        wanted = _Wanted(
            build_id=least.build_id,
            name=least.variant.name,
            tenant=self._groups.tenant_of(least.build_id) or "",
            own_bytes=least.resident_bytes,
            charged_bytes=least.resident_bytes + begin_bytes.get(GUARDS, 0),
            need_bytes=least.need_bytes,
            begin_bytes=sum(begin_bytes.values()),
            can_fit=self._account.can_ever_fit(least),
        )
        return self._refused(wanted, self._account.overheads_with(least.build_id), tenant)

    def of_process(self, process: Process, tenant: str) -> OutOfMemory:
        """The error for a request of `tenant` that needs a process, which reads its texts, to begin."""
        own_bytes = process.bytes - process.shared_bytes
        wanted = _Wanted(
            build_id="",
            name="the process that reads texts",
            tenant=process.tenant or "",
            own_bytes=own_bytes,
            charged_bytes=own_bytes,
            need_bytes=process.bytes,
            begin_bytes=0,
            can_fit=process.bytes <= self._shares.budget_bytes,
        )
        return self._refused(wanted, self._memory.overheads(), tenant)

    def _refused(self, wanted: "_Wanted", overheads: Mapping[str, int], tenant: str) -> OutOfMemory:
        others = [b for b in self._memory.residents() if b.build_id != wanted.build_id]
        full = self._shares.full_of(wanted.tenant, wanted.charged_bytes, others)
        ceiling = None if full is None else full.ceiling_bytes
        if wanted.can_fit and full is not None and ceiling is not None:
            own = [b for b in others if self._groups.tenant_of(b.build_id) == full.tenant]
            return self._ceiling(wanted, own, full, ceiling, tenant).as_seen_by(tenant)
        free = max(0, self._memory.budget_bytes - self._memory.used_bytes)
        blockers, missing = processes_beside(overheads), 0
        if wanted.can_fit:
            need_bytes = wanted.need_bytes + wanted.begin_bytes
            blockers, missing = self._blockers(wanted, others, need_bytes - free, tenant, blockers)
        return OutOfMemory(
            build_id=wanted.build_id,
            need_bytes=wanted.need_bytes,
            budget_bytes=self._shares.budget_bytes,
            variant=wanted.name,
            free_bytes=free,
            can_fit=wanted.can_fit,
            blockers=blockers,
            would_fit=[] if wanted.can_fit else self._unverified_that_fit(wanted.build_id, tenant),
            retry_after_s=_again_s(blockers, missing) if wanted.can_fit else None,
        )

    def _unverified_that_fit(self, build_id: str, tenant: str) -> list[str]:
        """Variants beside one that can never fit which could, and are left out for want of evidence."""
        users = [self._catalogue.entry(id) for id in self._catalogue.users_of(build_id)]
        entry = next((one for one in users if one.application.tenant == tenant or one.application.shared), None)
        return [] if entry is None else self._account.unverified_that_fit(entry)

    def _ceiling(
        self, wanted: "_Wanted", own: list[ResidentBuild], full: Holding, ceiling: int, tenant: str
    ) -> CeilingReached:
        """Only the models of the tenant itself are in the way."""
        can_fit = wanted.own_bytes <= ceiling
        blockers, missing = processes_beside({GUARDS: self._shares.in_guards(full.tenant)}), 0
        if can_fit:
            missing = full.held_bytes + wanted.own_bytes - ceiling
            blockers, missing = self._blockers(wanted, own, missing, tenant, blockers)
        return CeilingReached(
            build_id=wanted.build_id,
            need_bytes=wanted.need_bytes,
            budget_bytes=self._shares.budget_bytes,
            variant=wanted.name,
            free_bytes=max(0, ceiling - full.held_bytes),
            can_fit=can_fit,
            blockers=blockers,
            retry_after_s=_again_s(blockers, missing) if can_fit else None,
            tenant=full.tenant,
            held_bytes=full.held_bytes,
            ceiling_bytes=ceiling,
        )

    def _blockers(
        self, wanted: "_Wanted", others: list[ResidentBuild], missing: int, tenant: str, processes: list[Blocker]
    ) -> tuple[list[Blocker], int]:
        """Who cannot be made to leave, with the `processes` beside builds, the largest first, and what is missing
        beside what those free who can.

        Where they would have been enough, the policy has kept them, and they are named too.
        """
        guaranteed = self._shares.guaranteed(wanted.tenant, others)
        promised = self._shares.promised({build.build_id for build in others})
        held = [(build, self._why(build, guaranteed, promised)) for build in others]
        may_leave = sum(build.bytes for build, why in held if why is None)
        found = list(processes)
        for build, why in held:
            if why is None and may_leave < missing:
                continue
            reason, until_s = why or ("kept by the policy", None)
            name = self._name(build.build_id, tenant)
            found.append(Blocker(application=name, mb=build.bytes / BYTES_PER_MB, why=reason, until_s=until_s))
        taken = self._shares.budget_bytes - self._memory.budget_bytes
        if taken > 0:
            found.append(Blocker(application=None, mb=taken / BYTES_PER_MB, why="other programs", until_s=None))
        found.sort(key=lambda b: (-b["mb"], b["application"] or "", b["why"]))
        return found, missing - may_leave if may_leave < missing else missing

    def _why(self, build: ResidentBuild, guaranteed: Set[str], promised: Set[str]) -> tuple[str, float | None] | None:
        """Why a build stays, and how many seconds more; None: it may leave."""
        record = self._memory.build(build.build_id)
        group = self._groups.of_build(build.build_id)
        if record is not None and record.state is ResidencyState.LOADING:
            option = None if group is None else group.option(build.build_id)
            return "loading", None if option is None else option.load_ns / NS_PER_S
        if build.build_id in promised:
            return "promised to sessions", None
        if build.pinned:
            return "pinned", None
        if build.build_id in guaranteed:
            return "guaranteed", None
        window_ns = None if group is None else self._expectations.of(group.name).window_ns
        if window_ns is None:
            return None
        left_ns = max(0, window_ns + self._expectations.delta_ns - self._clock.now_ns())
        has_smaller = group is not None and group.servables[-1].build_id != build.build_id
        if has_smaller and self._patience_ns is not None:
            left_ns = min(left_ns, self._patience_ns)
        return "in its window", left_ns / NS_PER_S

    def _name(self, build_id: str, tenant: str) -> str | None:
        """The caller's own application that the build serves."""
        return next((a for a in self._catalogue.users_of(build_id) if a.startswith(f"{tenant}/")), None)


def _again_s(blockers: Sequence[Blocker], missing: int) -> float | None:
    """When enough of what blocks is over: the first ends that free what is missing. None where that cannot be known."""
    left_mb, again_s = missing / BYTES_PER_MB, _SOON_S
    for blocker in sorted(blockers, key=_end_s):
        end_s = _end_s(blocker)
        if left_mb <= 0 or end_s == _NEVER_S:
            break
        left_mb, again_s = left_mb - blocker["mb"], max(again_s, end_s)
    return again_s if left_mb <= 0 else None


_NEVER_S = float("inf")


def _end_s(blocker: Blocker) -> float:
    """Its end; one that is in use is so for a run, which is over at any moment."""
    if blocker["until_s"] is not None:
        return blocker["until_s"]
    return _SOON_S if blocker["why"] in ("pinned", "loading") else _NEVER_S
