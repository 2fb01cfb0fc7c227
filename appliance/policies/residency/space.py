"""The account of memory while a plan is made: what is free, what each tenant holds, and whether a change keeps every
bound.

A plan's changes are enacted in their order, each one unloading before it loads: so the bound on memory is checked with
the peak of what loads at the moment it loads. A tenant never falls below its guarantee for the sake of another one, and
never rises above its ceiling.
"""

from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyProblem, TenantShare

_NO_SHARE = TenantShare("")


class Space:
    """Memory after the changes taken so far; starts at the problem's state."""

    def __init__(self, problem: ResidencyProblem) -> None:
        self._shares = {share.name: share for share in problem.tenants}
        self._used: dict[str, int] = dict.fromkeys(self._shares, 0)
        for application in problem.applications if self._shares else ():
            loaded = application.loaded
            if loaded is not None and application.tenant in self._used:
                self._used[application.tenant] += loaded.bytes
        self.free_bytes = problem.memory_bytes - problem.held_bytes
        """Below zero where others took memory since."""

    def copy(self) -> "Space":
        """An account of its own."""
        other = object.__new__(Space)
        other._shares, other._used, other.free_bytes = self._shares, dict(self._used), self.free_bytes
        return other

    def short_bytes(self, before: Option | None, after: Option, beside: bool = False) -> int:
        """What is missing to load `after` in place of `before`, or `beside` it while it answers requests; 0 or less
        where nothing is.
        """
        own = 0 if before is None or beside else before.bytes
        return after.peak_bytes - self.free_bytes - own

    def over_ceiling_bytes(self, application: ApplicationState, before: Option | None, after: Option) -> int:
        """By how much the tenant's residents would exceed its ceiling; 0 or less where they would not, or shrink."""
        if not self._shares:
            return 0
        share = self._shares.get(application.tenant, _NO_SHARE)
        grown = after.bytes - (0 if before is None else before.bytes)
        if share.ceiling_bytes is None or grown <= 0:
            return 0
        return self._used[application.tenant] + grown - share.ceiling_bytes

    def spares(self, application: ApplicationState, freed_bytes: int, asker: ApplicationState | None) -> bool:
        """Its tenant can give `freed_bytes` to the asker: the same tenant's, or what is above the guarantee."""
        share = self._shares.get(application.tenant)
        if share is None or (asker is not None and application.tenant == asker.tenant):
            return True
        return freed_bytes <= 0 or self._used[application.tenant] - freed_bytes >= share.guarantee_bytes

    def take(self, application: ApplicationState, before: Option | None, after: Option | None) -> None:
        """Enter a change. The caller asked first whether it may be."""
        freed = (0 if before is None else before.bytes) - (0 if after is None else after.bytes)
        self.free_bytes += freed
        if application.tenant in self._used:
            self._used[application.tenant] -= freed


def bounded(problem: ResidencyProblem, changes: tuple[Change, ...], beside: ApplicationState | None = None) -> bool:
    """Whether `changes`, one after the other, keep memory within its bound at every instant, and guarantees and
    ceilings after all of them.

    What `beside` has stays until its change is over, as that of a pinned one does.
    """
    space = Space(problem)
    asker = None if problem.request is None else problem.asker
    for change in changes:
        application = problem.by_name[change.application]
        before = application.loaded
        after = None if change.after is None else application.variant(change.after)
        if (
            after is not None
            and space.short_bytes(before, after, beside=application.pinned or application is beside) > 0
        ):
            return False
        if after is not None and space.over_ceiling_bytes(application, before, after) > 0:
            return False
        freed = (0 if before is None else before.bytes) - (0 if after is None else after.bytes)
        if application is not asker and not space.spares(application, freed, asker):
            return False
        space.take(application, before, after)
    return True
