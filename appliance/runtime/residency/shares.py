"""What of memory each tenant's models can count on, and may not exceed: the memory part of its quota, and who holds how
much of it.

A build is the memory of the tenant whose model it is; of the first one by id where models of several tenants have equal
content. So is what the tenant's guards take by themselves.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from types import MappingProxyType

from appliance.domain.catalogue import Tenant
from appliance.domain.names import kind_of, owner_of
from appliance.domain.overhead import FORK_SERVERS, GUARDS
from appliance.policies.residency.base import TenantShare
from appliance.policies.residency.sleepers import Sleeper, order_of_leaving
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.memory.room import Holding, Process, ResidentBuild
from appliance.runtime.residency.groups import VariantGroups


class Shares:
    """The shares of the tenants that have one, made anew when the catalogue has changed."""

    def __init__(
        self,
        catalogue: Catalogue,
        groups: VariantGroups,
        budget_bytes: int,
        guard_bytes: Mapping[str, int] = MappingProxyType({}),
        server_bytes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`budget_bytes`: what a `memory_share` is a share of; the budget as it is set, not as it is while others
        take memory. `guard_bytes`: kind of processor → what a guard there takes by itself, before it is there to tell;
        `server_bytes`: the same of what guards are forked of.
        """
        self._server_bytes = server_bytes
        self._servers: Mapping[str, int] = {}
        """Kind → what that takes which guards are forked of, where it is there."""
        self._guard_bytes = guard_bytes
        self._guards: Mapping[tuple[str, str], int] = {}
        """Tenant and kind → what its guard takes by itself."""
        self._catalogue = catalogue
        self._groups = groups
        self.budget_bytes = budget_bytes
        self._version = -1
        self._shares: dict[str, TenantShare] = {}
        self.promised: Callable[[Collection[str]], Set[str]] = lambda there: frozenset()
        """Return which of the builds in memory promises need; the arbiter knows."""

    def tenant_of(self, build_id: str) -> str:
        """Return the tenant that a build counts for; empty where there is none."""
        return self._groups.tenant_of(build_id) or ""

    def charge_guards(self, base_bytes: Mapping[tuple[str, str], int]) -> None:
        """What guards take by themselves from now on, by their tenant and their kind of processor."""
        self._guards = base_bytes

    def charge_servers(self, server_bytes: Mapping[str, int]) -> None:
        """What processes take from now on that guards are forked of, by kind; they are nobody's."""
        self._servers = {kind: count_bytes for kind, count_bytes in server_bytes.items() if count_bytes}

    def server_to_come(self, kind: str) -> int:
        """What that takes which has to begin with a guard of a kind; 0 where it is there."""
        return 0 if kind in self._servers else self._server_bytes.get(kind, 0)

    def all(self) -> tuple[TenantShare, ...]:
        """By name."""
        return tuple(self._refreshed().values())

    def holdings(self, holders: Iterable[ResidentBuild]) -> list[Holding]:
        """Of tenants that hold some memory, or for which a guarantee or a ceiling is set, by name; `holders`: builds
        awake and asleep.
        """
        held = self._held(holders)
        for (tenant, _kind), count_bytes in self._guards.items():
            held[tenant] = held.get(tenant, 0) + count_bytes
        limits = self._refreshed()
        unlimited = {tenant: TenantShare(tenant, 0, None) for tenant in held}
        return [
            Holding(name, held.get(name, 0), share.guarantee_bytes, share.ceiling_bytes)
            for name, share in sorted((unlimited | limits).items())
        ]

    def less(self, builds: Iterable[ResidentBuild], coming: str = "") -> tuple[TenantShare, ...]:
        """The shares less what tenants hold of `builds` and in their guards, which a policy does not know of; with the
        guard that has to be begun for the build `coming`.
        """
        shares = self.all()
        held = self._held(builds) if shares else {}
        if shares and coming and (guard_bytes := self._guard_to_come(coming)):
            tenant = self._groups.tenant_of(coming) or ""
            held[tenant] = held.get(tenant, 0) + guard_bytes
        return tuple(_less(share, held.get(share.name, 0) + self.in_guards(share.name)) for share in shares)

    def has_ceiling(self, newcomer: str) -> bool:
        """Whether the newcomer's tenant may not take all there is."""
        shares = self._refreshed()
        share = shares.get(self._groups.tenant_of(newcomer) or "") if shares else None
        return share is not None and share.ceiling_bytes is not None

    def full(
        self, newcomer: str, size: int, resident: Iterable[ResidentBuild], apart: Set[str] = frozenset()
    ) -> Holding | None:
        """The newcomer's tenant, where a build of that size would take it above its ceiling; those in `apart` do not
        count. One that comes into a guard that is not there yet takes what that takes, too.
        """
        if not self.has_ceiling(newcomer):
            return None
        tenant = self._groups.tenant_of(newcomer) or ""
        return self.full_of(tenant, size + self._guard_to_come(newcomer), resident, apart)

    def full_of(
        self, tenant: str, size: int, resident: Iterable[ResidentBuild], apart: Set[str] = frozenset()
    ) -> Holding | None:
        """A tenant, where so many bytes more would take it above its ceiling; builds in `apart` do not count."""
        share = self._refreshed().get(tenant)
        if share is None or share.ceiling_bytes is None:
            return None
        held = sum(b.bytes for b in self._own(share.name, resident) if b.build_id not in apart)
        held += self.in_guards(share.name)
        if held + size <= share.ceiling_bytes:
            return None
        return Holding(share.name, held, share.guarantee_bytes, share.ceiling_bytes)

    def surplus(self, resident: Iterable[ResidentBuild]) -> list[str]:
        """Builds that must go for every tenant to be below its ceiling, after one was lowered: the longest unused
        first, without those that need not go beside the others.
        """
        there = list(resident)
        going: list[str] = []
        for share in self.all():
            if share.ceiling_bytes is None:
                continue
            own = self._own(share.name, there)
            above = sum(b.bytes for b in own) + self.in_guards(share.name) - share.ceiling_bytes
            chosen: list[ResidentBuild] = []
            for build in own:
                if above > 0:
                    chosen.append(build)
                    above -= build.bytes
            for build in sorted(chosen, key=lambda one: -one.last_used_ns):
                if above + build.bytes <= 0:
                    chosen.remove(build)
                    above += build.bytes
            going += [build.build_id for build in chosen]
        return going

    def order_of_leaving(self, sleepers: Iterable[ResidentBuild]) -> list[str]:
        """Builds that sleep, whoever goes for good first."""
        known = [
            Sleeper(b.build_id, self._groups.tenant_of(b.build_id) or "", b.bytes, b.last_used_ns) for b in sleepers
        ]
        return order_of_leaving(known, self._catalogue.processor_weight)

    def asleep_above_ceiling(
        self, sleepers: Iterable[ResidentBuild], residents: Callable[[], Iterable[ResidentBuild]]
    ) -> Collection[str]:
        """Builds that sleep and must go for every tenant to be below its ceiling, with what it has awake: the longest
        unused first.
        """
        bounded = [share for share in self.all() if share.ceiling_bytes is not None]
        if not bounded:
            return ()
        asleep, awake = list(sleepers), self._held(residents())
        going: set[str] = set()
        for share in bounded:
            own = self._own(share.name, asleep)
            above = awake.get(share.name, 0) + sum(b.bytes for b in own) - (share.ceiling_bytes or 0)
            above += self.in_guards(share.name)
            for build in own:
                if above > 0:
                    going.add(build.build_id)
                    above -= build.bytes
        return going

    def guaranteed(
        self,
        asker: str | None,
        resident: Iterable[ResidentBuild],
        ending_bytes: Mapping[str | None, int] = MappingProxyType({}),
    ) -> set[str]:
        """Builds that may not leave for what the tenant `asker` needs: without them, other tenants would have less than
        is guaranteed to them, or promises to anybody would break. `ending_bytes`: tenant → what a guard of its that
        would end takes by itself.
        """
        there = list(resident)
        kept = set(self.promised({build.build_id for build in there}))
        for share in self.all():
            if share.name == asker or not share.guarantee_bytes:
                continue
            own = self._own(share.name, there)
            held = sum(b.bytes for b in own) + self.in_guards(share.name) - ending_bytes.get(share.name, 0)
            for build in own:
                held -= build.bytes
                if held < share.guarantee_bytes:
                    kept.add(build.build_id)
        return kept

    def in_guards(self, tenant: str) -> int:
        """What a tenant's guards take by themselves."""
        return sum(count_bytes for (owner, _kind), count_bytes in self._guards.items() if owner == tenant)

    def guard_bytes_of(self, build_id: str) -> int:
        """What the guard takes by itself that a build needs, there or yet to begin, with what it is forked of; 0 where
        it needs none.
        """
        tenant, kind = owner_of(build_id)[1], kind_of(build_id)
        if tenant is None:
            return 0
        server_bytes = self._servers.get(kind, self._server_bytes.get(kind, 0))
        return self._guards.get((tenant, kind), self._guard_bytes.get(kind, 0)) + server_bytes

    def ceiling_for(self, tenant: str, builds: Collection[str] = ()) -> int | None:
        """What a tenant's builds may take beside its guards, with those that have to begin for these builds; None: all
        there is.
        """
        share = self._refreshed().get(tenant)
        if share is None or share.ceiling_bytes is None:
            return None
        kinds = {kind_of(build) for build in builds if owner_of(build)[1] == tenant}
        to_come = sum(self._guard_bytes.get(kind, 0) for kind in kinds if (tenant, kind) not in self._guards)
        return share.ceiling_bytes - self.in_guards(tenant) - to_come

    def guard_to_come(self, newcomer: str) -> Process | None:
        """The guard that has to be begun for a build, by its tenant and its kind of processor, with what has to begin
        before the first one of a kind; None where none has.
        """
        to_come = self.processes_to_come(newcomer)
        tenant, kind = owner_of(newcomer)[1], kind_of(newcomer)
        return Process((tenant, kind), sum(to_come.values()), tenant, to_come[FORK_SERVERS]) if to_come else None

    def processes_to_come(self, newcomer: str) -> dict[str, int]:
        """Sort of processes → what those take that have to begin for a build; empty where none has."""
        tenant, kind = owner_of(newcomer)[1], kind_of(newcomer)
        if tenant is None or (tenant, kind) in self._guards:
            return {}
        return {GUARDS: self._guard_bytes.get(kind, 0), FORK_SERVERS: self.server_to_come(kind)}

    def _guard_to_come(self, newcomer: str) -> int:
        """What the guard takes by itself that has to be begun, as its tenant is charged."""
        return self.processes_to_come(newcomer).get(GUARDS, 0)

    def _refreshed(self) -> dict[str, TenantShare]:
        if self._version != self._catalogue.version:
            self._version = self._catalogue.version
            shares = [self._share(tenant) for tenant in self._catalogue.tenants()]
            self._shares = {s.name: s for s in shares if s.guarantee_bytes or s.ceiling_bytes is not None}
        return self._shares

    def _share(self, tenant: Tenant) -> TenantShare:
        """The lower of two ceilings holds, and no guarantee is above it."""
        ceiling = tenant.quota.ceiling_bytes(self.budget_bytes)
        guarantee = tenant.quota.memory_guarantee_bytes or 0
        return TenantShare(tenant.name, guarantee if ceiling is None else min(guarantee, ceiling), ceiling)

    def _own(self, tenant: str, resident: Iterable[ResidentBuild]) -> list[ResidentBuild]:
        """A tenant's builds, the longest unused first."""
        own = [b for b in resident if self._groups.tenant_of(b.build_id) == tenant]
        return sorted(own, key=lambda b: (b.last_used_ns, b.build_id))

    def _held(self, builds: Iterable[ResidentBuild]) -> dict[str, int]:
        held: dict[str, int] = {}
        for build in builds:
            tenant = self._groups.tenant_of(build.build_id)
            if tenant is not None:
                held[tenant] = held.get(tenant, 0) + build.bytes
        return held


def _less(share: TenantShare, held: int) -> TenantShare:
    ceiling = None if share.ceiling_bytes is None else max(0, share.ceiling_bytes - held)
    return TenantShare(share.name, max(0, share.guarantee_bytes - held), ceiling)
