"""The account of one memory domain: a record of every build, and the bytes that builds occupy, are promised, or are
giving back. No waiting, no clock.

`committed` counts what has been promised (resident builds, loads, and what sleepers keep, not what is leaving) and
never exceeds the budget by a promise; `used` counts what is really there: promises whose load is still `waiting` for
room are left out, what is still `leaving` is in. Only a size that is measured anew, or a smaller budget, can push the
ledger over.
"""

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any

from appliance.domain.states import ResidencyState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.overview import Overview
from appliance.runtime.memory.room import ResidentBuild, RoomPlan, RoomProblem, needed_in_turn

_S = ResidencyState
_AWAY = (_S.ABSENT, _S.FAILED)
_BY_ID = attrgetter("build_id")
_BY_AGE = attrgetter("last_used_ns", "build_id")


class Ledger:
    """The books of a budget. Every method is a transaction; the caller asks first whether there is room."""

    def __init__(
        self,
        budget_bytes: int,
        users_of: Callable[[str], tuple[str, ...]] = lambda build_id: (),
        asleep_share: float = 0.0,
    ) -> None:
        """`users_of`: the applications that a build serves, by id. `asleep_share`: of the budget, what sleepers may
        keep.
        """
        self._budget_bytes = budget_bytes
        self._asleep_share = asleep_share
        self.users_of = users_of
        self._builds: dict[str, LoadedBuild] = {}
        self._overview = Overview(self._builds.get, self.kept_when_gone)
        self.get = self._builds.get
        """The record of a build that was ever asked for, by id; the method itself, for every request asks."""
        self._committed = 0
        self._leaving = 0
        self._waiting = 0
        self.overheads: dict[str, int] = {}
        """Sort of processes → what those take beside builds; occupied, and promised to nobody."""
        self._coming = 0

    # -- bytes ---------------------------------------------------------------------------------------------------------

    @property
    def budget_bytes(self) -> int:
        """What may be promised in all."""
        return self._budget_bytes

    @budget_bytes.setter
    def budget_bytes(self, budget_bytes: int) -> None:
        if budget_bytes != self._budget_bytes:
            self._budget_bytes = budget_bytes
            self._overview.changed.update(self._builds)  # what may sleep is a share of it

    @property
    def overhead_bytes(self) -> int:
        """What processes take beside builds."""
        return sum(self.overheads.values())

    @property
    def builds_bytes(self) -> int:
        """What builds may take together now: what processes beside them neither take nor are promised."""
        return self._budget_bytes - self.overhead_bytes - self._coming

    @property
    def used_bytes(self) -> int:
        """What is occupied now: loaded, being loaded, and leaving."""
        return self._committed - self._waiting + self._leaving

    @property
    def free_bytes(self) -> int:
        """What may still be promised; below zero when the ledger is over its budget."""
        return self.budget_bytes - self._committed

    def has_room_beside(self, need_bytes: int) -> bool:
        """Whether that much is free now, with all promises kept and nobody gone."""
        return self.used_bytes + self._waiting + need_bytes <= self.budget_bytes

    def is_free(self, build: LoadedBuild) -> bool:
        """Whether the bytes of a waiting promise are free now, and those that it borrows: its load may start."""
        if build.borrowers or (build.lender is not None and build.borrows_bytes > (build.lender.promised_bytes or 0)):
            return False
        need_bytes = (build.promised_bytes or 0) + build.borrows_bytes
        return self.used_bytes + need_bytes + self._coming <= self.budget_bytes

    @property
    def coming_bytes(self) -> int:
        """Promised to processes that are yet to begin, and not occupied before."""
        return self._coming

    @coming_bytes.setter
    def coming_bytes(self, count_bytes: int) -> None:
        self._committed += count_bytes - self._coming
        self._waiting += count_bytes - self._coming
        self._coming = count_bytes

    @property
    def has_room_to_begin(self) -> bool:
        """Whether what was promised to processes is free now, so that they may begin."""
        return self.used_bytes + self._coming <= self.budget_bytes

    def set_overhead(self, count_bytes: int, of: str) -> None:
        """What processes of one sort take: it counts as committed and as used."""
        self._committed += count_bytes - self.overheads.get(of, 0)
        self.overheads[of] = count_bytes

    def promise(self, build: LoadedBuild, count_bytes: int | None = None) -> None:
        """Commit so much, None: the peak of a load, or what a wake adds. It waits until the bytes are free."""
        build.promised_bytes = 0
        self._promise_more(build, build.need_bytes if count_bytes is None else count_bytes)

    def lend(self, lender: LoadedBuild, borrowers: Collection[LoadedBuild]) -> None:
        """Waiting `borrowers` load one after the other, and then the lender, whose promise covers each of their peaks
        beside their own promises.
        """
        for build in borrowers:
            build.lender = lender
            build.borrows_bytes = build.need_bytes - (build.promised_bytes or 0)
        lender.borrowers = len(borrowers)

    def begin(self, build: LoadedBuild) -> None:
        """A promise waits no more: its bytes are occupied from now on, with those that it borrows."""
        if build.lender is not None:
            build.owes_bytes, build.borrows_bytes = build.borrows_bytes, 0
            self._promise_more(build.lender, -build.owes_bytes)
            self._promise_more(build, build.owes_bytes)
        self._waiting -= build.promised_bytes or 0

    def give_up(self, build: LoadedBuild) -> None:
        """A promise waits no more: `cancel` comes next."""
        self._waiting -= build.promised_bytes or 0

    def cancel(self, build: LoadedBuild) -> None:
        """A load came to nothing; one that was to wake keeps what it had."""
        promised, build.promised_bytes = build.promised_bytes or 0, None
        self._committed -= promised
        build.bytes -= promised
        build.on_change(build.build_id)
        self._give_back(build)
        if build.borrowers:
            self._lend_no_more(build)

    def recount(self, build: LoadedBuild) -> None:
        """A loaded build takes its resident size: after the peak of its load, or as newly measured."""
        self._committed += build.resident_bytes - build.bytes
        build.bytes = build.resident_bytes
        build.promised_bytes = None
        build.kept_bytes = 0
        build.on_change(build.build_id)
        self._give_back(build)

    def _promise_more(self, build: LoadedBuild, count_bytes: int) -> None:
        build.promised_bytes = (build.promised_bytes or 0) + count_bytes
        build.bytes += count_bytes
        self._committed += count_bytes
        self._waiting += count_bytes
        build.on_change(build.build_id)

    def _give_back(self, build: LoadedBuild) -> None:
        """Return borrowed bytes to the lender when the load of a build is over."""
        lender, owed_bytes = build.lender, build.owes_bytes
        build.lender, build.borrows_bytes, build.owes_bytes = None, 0, 0
        if lender is not None:
            lender.borrowers -= 1
            self._promise_more(lender, owed_bytes)

    def _lend_no_more(self, lender: LoadedBuild) -> None:
        """What was to come before it comes out of free memory: a load that is under way, and others as long as there
        is some.
        """
        lender.borrowers = 0
        for build in self._builds.values():
            if build.lender is lender:
                build.lender, build.owes_bytes = None, 0
                if 0 < build.borrows_bytes <= self.free_bytes:
                    self._promise_more(build, build.borrows_bytes)
                    build.borrows_bytes = 0

    def leave(self, build: LoadedBuild, kept_bytes: int = 0) -> None:
        """A build begins to leave, but for what it keeps: nobody is promised those bytes any more, but they are not
        free yet.
        """
        build.kept_bytes = kept_bytes
        self._committed -= build.bytes - kept_bytes
        self._leaving += build.bytes - kept_bytes
        build.on_change(build.build_id)

    def left(self, build: LoadedBuild) -> None:
        """It has gone, or is asleep."""
        self._leaving -= build.bytes - build.kept_bytes
        build.bytes = build.kept_bytes
        build.on_change(build.build_id)

    def keeps(self, build: LoadedBuild, kept_bytes: int) -> None:
        """What a sleeper keeps, as measured; 0 when it is lost."""
        self._committed += kept_bytes - build.bytes
        build.bytes = build.kept_bytes = kept_bytes
        build.on_change(build.build_id)

    # -- sleepers ------------------------------------------------------------------------------------------------------

    @property
    def asleep_max_bytes(self) -> int:
        """What sleepers may keep together."""
        return int(self.budget_bytes * self._asleep_share)

    @property
    def asleep_bytes(self) -> int:
        """What sleepers keep, and those on their way there will."""
        return sum(self._overview.kept().values())

    def kept_when_gone(self, build: LoadedBuild) -> int:
        """What a resident build keeps if it leaves now; 0 where it is unloaded, for it cannot sleep or that is not
        worth it.
        """
        kept = build.asleep_bytes
        if kept is None or build.is_for_good or build.handle is None:
            return 0
        return kept if 0 < kept < build.resident_bytes and kept <= self.asleep_max_bytes else 0

    def sleepers(self) -> list[LoadedBuild]:
        """Builds that sleep, the one asked longest ago first."""
        asleep = (self._builds[build_id] for build_id in self._overview.asleep())
        return sorted((b for b in asleep if b.state is _S.ASLEEP), key=_BY_AGE)

    def holders(self) -> list[ResidentBuild]:
        """What takes memory now or soon, asleep or not."""
        return [*self.residents(), *(as_asleep(self._builds[build_id]) for build_id in self._overview.asleep())]

    def asleep(self) -> Mapping[str, int]:
        """Builds that sleep, or wait for room to wake, and what they keep."""
        return self._overview.asleep()

    # -- builds --------------------------------------------------------------------------------------------------------

    def entry(self, build_id: str, resident_bytes: int, peak_bytes: int) -> LoadedBuild:
        """The record of a build, made where there is none; the figures are taken over while it is not in memory."""
        build = self._builds.get(build_id)
        if build is None:
            build = LoadedBuild(build_id, resident_bytes, peak_bytes, on_change=self._overview.changed.add)
            self._builds[build_id] = build
        elif build.state in _AWAY:
            build.resident_bytes, build.peak_bytes = resident_bytes, peak_bytes
        return build

    def forget(self, build: LoadedBuild) -> None:
        """Drop the record of a build that is not in memory: models come and go, and the list of their builds must
        not grow for ever.
        """
        if build.state in _AWAY and not build.pins and self._builds.get(build.build_id) is build:
            del self._builds[build.build_id]
            build.on_change(build.build_id)

    def all(self) -> list[LoadedBuild]:
        """By id."""
        return sorted(self._builds.values(), key=_BY_ID)

    def is_away(self, build_id: str) -> bool:
        """Whether nothing of it is in memory, on its way there, or on its way out."""
        build = self._builds.get(build_id)
        return build is None or build.state in _AWAY

    def may_come(self, build_id: str) -> bool:
        """Whether a load or a wake of it can begin now."""
        build = self._builds.get(build_id)
        return build is None or build.state in _AWAY or build.state is _S.ASLEEP

    def wanted(self) -> set[str]:
        """Builds that somebody holds, or that are on their way into memory."""
        return {b.build_id for b in self._builds.values() if b.pins or b.state is _S.LOADING}

    def follow(self, build: LoadedBuild, victim: str | None) -> None:
        """A build leaves as soon as this one has come; None: none does."""
        self._overview.follow(build.successor_of, victim)
        build.successor_of = victim

    def followed(self) -> Collection[str]:
        """Builds that leave as soon as their replacement has come."""
        return self._overview.followed

    def residents(self) -> tuple[ResidentBuild, ...]:
        """What is in memory or on its way there, by id; what is being loaded counts as pinned."""
        return self._overview.residents()

    def awake(self) -> frozenset[str]:
        """Builds that a request would be warm on now; the same object until one comes or goes."""
        return self._overview.awake()

    def leavers(self) -> frozenset[str]:
        """Builds on their way out, or waiting for room."""
        return self._overview.leavers()

    def will_change(self, apart_from: LoadedBuild | None) -> bool:
        """Whether anything that is in use or being loaded may give memory back later."""
        others = (b for b in self._builds.values() if b is not apart_from and b.is_there)
        return any(b.pins or b.state is _S.LOADING for b in others)

    def check(self, plan: RoomPlan, problem: RoomProblem) -> None:
        """The arbiter's plan, before it is enacted. Raises: AssertionError for one that may not be made."""
        victims = [self._builds[v] for v in plan.victims]
        assert len({v.build_id for v in victims}) == len(victims), "a victim twice"
        assert all(v.state is _S.RESIDENT and v.pins == 0 for v in victims), "a victim is in use"
        assert {r.victim for r in plan.replacements} <= set(plan.victims), "a replacement without a victim"
        if plan.sufficient:
            freed = sum(self.freed_by(v) for v in victims)
            need_bytes = needed_in_turn(problem.need_bytes, plan.replacements, problem.asleep)
            assert problem.free_bytes + freed >= need_bytes, "the plan frees too little"
        assert all(self.may_come(r.build_id) for r in plan.replacements), "a replacement that is there already"

    def freed_by(self, build: LoadedBuild) -> int:
        """What a resident build's leaving frees."""
        return build.bytes - self.kept_when_gone(build)

    def facts(self, build: LoadedBuild) -> Mapping[str, Any]:
        """For events about a build."""
        return {
            "build": build.build_id,
            "bytes": build.bytes,
            "used_bytes": self.used_bytes,
            "applications": list(self.users_of(build.build_id)),
        }

    def rows(self, now_ns: int) -> list[dict[str, Any]]:
        """For `/v1/memory`: the builds that are not absent, by id."""
        there = sorted((b for b in self._builds.values() if b.state is not _S.ABSENT), key=_BY_ID)
        return [b.row(now_ns, self.users_of(b.build_id)) for b in there]


def as_asleep(build: LoadedBuild) -> ResidentBuild:
    """A sleeper, with what it keeps."""
    return ResidentBuild(build.build_id, build.kept_bytes, build.last_used_ns, pinned=False)
