"""Models and runs that find no room in memory: what they need, and who holds the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import ceil
from typing import TypedDict

from appliance.domain.errors.unavailable import Unavailable
from appliance.domain.overhead import SORTS
from appliance.domain.units import BYTES_PER_MB, megabytes


class Blocker(TypedDict):
    """Who holds memory that a refused request would need; plain members, as they stand in the problem document."""

    application: str | None
    """None: another tenant's, or nobody's."""
    mb: float
    why: str
    """`in its window`, `pinned`, `loading`, `guaranteed`, `promised to sessions`, `kept by the policy`, `other
    programs`, or processes beside models: `guards`, `fork servers` (what guards are forked of) or `planner processes`.
    """
    until_s: float | None
    """In so many seconds that will be over; None where nobody can say."""


@dataclass(kw_only=True, eq=False)
class OutOfMemory(Unavailable, title="No room in memory"):
    """The least that would have answered found no room.

    `variant` is that one, `need_bytes` what its load needs, `budget_bytes` what models may take.
    """

    build_id: str
    need_bytes: int
    budget_bytes: int
    variant: str = ""
    free_bytes: int = 0
    can_fit: bool = True
    """False: not even if nothing else were in memory."""
    blockers: list[Blocker] = field(default_factory=list)
    would_fit: list[str] = field(default_factory=list)
    """Where it can never fit: unverified variants that could, most accurate first. They answer where a request names
    them, or where the application sets `unverified` to `allow`.
    """
    never = 507, "It can never fit into memory"

    def message(self) -> str:
        if not self.can_fit:
            advice = f"{self._unverified()}{self._never()}"
            return f"no room in memory, ever: {self._need()}, {self._limit()}{self._held()}; {advice}"
        return f"no room in memory now: {self._need()}, {self._limit()}{self._held()}; {self._again()}"

    def answer(self) -> tuple[int, str]:
        return super().answer() if self.can_fit else self.never

    def as_seen_by(self, tenant: str) -> "OutOfMemory":
        """The same without the names of other tenants' applications."""
        own = f"{tenant}/"
        blockers = [
            {**one, "application": name if (name := one["application"]) and name.startswith(own) else None}
            for one in self.blockers
        ]
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        return type(self)(**{**known, "blockers": blockers})

    def _need(self) -> str:
        return f"at the least {self.variant or 'the model'} needs {megabytes(self.need_bytes)}"

    def _limit(self) -> str:
        """What stands against the need."""
        if not self.can_fit:
            return f"models may take {megabytes(self.budget_bytes)}, or the part of it that the model's owner may take"
        return f"and {megabytes(self.free_bytes)} of {megabytes(self.budget_bytes)} are free"

    def _never(self) -> str:
        return "raise the memory budget, or upload a smaller variant"

    def _unverified(self) -> str:
        if not self.would_fit:
            return ""
        one = f"{', '.join(self.would_fit)} would fit and {'is' if len(self.would_fit) == 1 else 'are'} unverified"
        return f"{one}: name it, or set unverified of the application to allow; else "

    def _held(self) -> str:
        return "".join(f"; {_held_by(blocker)}" for blocker in self.blockers)

    def _again(self) -> str:
        if self.retry_after_s is None:
            return "how long is not known: unload a model, or upload a smaller variant"
        return f"try again in {max(1, ceil(self.retry_after_s))} s"


class NoRoomToRun(OutOfMemory):
    """The model is there, but a run of inputs as large as these does not fit beside it."""

    def _need(self) -> str:
        return f"a run of inputs as large as these takes up to {megabytes(self.need_bytes)} beside the model"

    def _limit(self) -> str:
        if not self.can_fit:
            return f"models and runs may take {megabytes(self.budget_bytes)} together"
        return f"and {megabytes(self.free_bytes)} are free"

    def _never(self) -> str:
        return "send smaller inputs, or raise the memory budget"

    def _again(self) -> str:
        return "try again when others have run, send smaller inputs, or unload a model"


def processes_beside(overheads: Mapping[str, int]) -> list[Blocker]:
    """What processes beside models take, by sort; the largest first."""
    held = sorted(((count, of) for of, count in overheads.items() if count), reverse=True)
    return [Blocker(application=None, mb=count / BYTES_PER_MB, why=of, until_s=None) for count, of in held]


def _held_by(blocker: Blocker) -> str:
    if blocker["why"] in SORTS:
        return f"{blocker['why']} {blocker['mb']:.6g} MB"
    who = blocker["application"] or ("others" if blocker["why"] == "other programs" else "another's application")
    until = blocker["until_s"]
    return f"{who} {blocker['mb']:.6g} MB ({blocker['why']}{'' if until is None else f', {until:.3g} s more'})"


@dataclass(kw_only=True, eq=False)
class CeilingReached(OutOfMemory, title="The tenant may take no more memory"):
    """There may be room in the budget, but not below the ceiling of the tenant that owns the model."""

    tenant: str
    held_bytes: int
    ceiling_bytes: int

    def _limit(self) -> str:
        return f"tenant {self.tenant!r} holds {megabytes(self.held_bytes)} and may hold {megabytes(self.ceiling_bytes)}"

    def _never(self) -> str:
        return "upload a smaller variant, or have the ceiling raised"

    def _again(self) -> str:
        again = "" if self.retry_after_s is None else f"{super()._again()}, or "
        return f"{again}unload another of its models, upload a smaller variant, or have the ceiling raised"

    def as_seen_by(self, tenant: str) -> OutOfMemory:
        """What others hold is nobody's business, also where they share a model."""
        if tenant == self.tenant:
            return self
        known = {f.name: getattr(self, f.name) for f in fields(OutOfMemory)}
        return OutOfMemory(**known).as_seen_by(tenant)
