"""Who was in memory when, and why: stays of builds, put together from events and from decisions as they are recorded.

A stay begins when a build has been loaded or woken, or fallen asleep, and ends when it leaves or wakes. It refers to
the decision that ordered its beginning, and to the one that ordered its end, where there was one: what finds room needs
none.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from appliance.clock import Clock
from appliance.domain.states import ResidencyState
from appliance.history.file import ReasonRow, StayRow, WindowRow
from appliance.policies.residency.base import ResidencyPlan, ResidencyProblem

ORDER_S = 120.0
"""What was decided longer ago did not order what happens now."""
ORDERS_MAX = 4096
WAITING_MAX = 20_000
"""Stays and windows that wait to be written: of a minute, or of so long as the disk is full."""
JOINED_S = 2.0
"""A window that opens so soon after the last one of its application closed goes on with that."""
_REASON_MAX = 500
_CAME = {"variant loaded": "loaded", "variant woken": "woken"}
_LEAVES = {"variant evicted": "evicted", "variant released": "released", "variant lost": "lost"}
_LEFT = {"variant asleep", "variant unloaded"}


@dataclass(slots=True)
class Order:
    """A decision that changes memory. `number` is None until it is stored."""

    at_s: float
    reason: str
    tenants: frozenset[str]
    number: int | None = None

    def stored(self, number: int) -> None:
        self.number = number


@dataclass(slots=True)
class _Stay:
    """One that is written again when it has ended, and as long as the numbers of its decisions are not known."""

    row: StayRow
    came: Order | None
    went: Order | None = None

    def as_row(self) -> StayRow:
        came = None if self.came is None else self.came.number
        went = None if self.went is None else self.went.number
        return self.row._replace(came=came, went=went)


class Residence:
    """Event-loop thread only."""

    def __init__(self, clock: Clock, variants_of: Callable[[str, str], Sequence[str]]) -> None:
        """`variants_of`: an application and a build → the names of the variants that it serves; none where it is no
        build of the application any more.
        """
        self._clock = clock
        self._variants_of = variants_of
        self._next_id = 1
        self._here: dict[str, _Stay] = {}
        """Build → its stay that has not ended."""
        self._leaving: dict[str, str] = {}
        """Build → how it was told to leave."""
        self._changed: OrderedDict[int, _Stay] = OrderedDict()
        """By id, those to be written."""
        self._orders: OrderedDict[tuple[str, str | None, str], Order] = OrderedDict()
        """(application, variant, "to" or "from") → the decision. Variant None: whichever comes for it."""
        self._open: dict[str, float] = {}
        """Application → since when its window is open."""
        self._closed: dict[str, WindowRow] = {}
        """Its last one, which may go on."""
        self._windows: list[WindowRow] = []
        self._writing: tuple[tuple[_Stay, ...], list[WindowRow]] = ((), [])
        """What has been taken and may not be in the file yet."""

    # -- what is told --------------------------------------------------------------------------------------------------

    def decided(self, kind: str, facts: Mapping[str, Any]) -> Callable[[int], None] | None:
        """A decision is recorded; who is to be told its number when it is stored."""
        if kind not in ("residency", "neighbours"):
            return None
        orders = list(_orders_of(facts))
        if not orders:
            return None
        order = Order(self._now(), *_reason_of(facts))
        for key in orders:
            self._orders.pop(key, None)
            self._orders[key] = order
        while len(self._orders) > ORDERS_MAX:
            self._orders.popitem(last=False)
        return order.stored

    def happened(self, event: str, facts: Mapping[str, Any]) -> None:
        """An event about a build."""
        build = facts.get("build")
        if not isinstance(build, str):
            return
        if event in _CAME:
            self._came(build, facts, _CAME[event])
        elif event in _LEAVES:
            self._leaving[build] = _LEAVES[event]
        elif event in _LEFT:
            self._left(build)
            if event == "variant asleep":
                self._begin(build, facts, "fell asleep", None, ResidencyState.ASLEEP)

    def window_opened(self, application: str) -> None:
        now = self._now()
        last = self._closed.get(application)
        if last is not None and 0 <= now - last.until <= JOINED_S:
            del self._closed[application]
            now = last.since
        self._open.setdefault(application, now)

    def window_closed(self, application: str) -> None:
        since = self._open.pop(application, None)
        if since is None:
            return
        before = self._closed.pop(application, None)
        if before is not None and len(self._windows) < WAITING_MAX:
            self._windows.append(before)
        self._closed[application] = WindowRow(application, since, max(since, self._now()))

    # -- what is written -----------------------------------------------------------------------------------------------

    def begin_at(self, id: int) -> None:
        """Numbers of stays go on after `id`, the last one of the file; once, before anything is taken."""
        for stay in self._known():
            stay.row = stay.row._replace(id=stay.row.id + id)
        self._changed = OrderedDict((stay.row.id, stay) for stay in self._changed.values())
        self._next_id += id

    def taken(self) -> "Changes":
        """What is to be written now; then comes `written`, or `put_back`."""
        stays, self._changed = self._changed, OrderedDict()
        now = self._now()
        over = [one for one in self._closed.values() if not 0 <= now - one.until <= JOINED_S]
        for one in over:
            del self._closed[one.application]
        windows, self._windows = [*self._windows, *over], []
        self._writing = tuple(stays.values()), windows
        return _changes(self._writing[0], windows)

    def written(self) -> None:
        """What was taken is in the file. Stays whose decisions have no number yet are written once more."""
        stays, _ = self._writing
        for stay in stays:
            orders = [one for one in (stay.came, stay.went) if one is not None and one.number is None]
            if orders and self._now() - min(one.at_s for one in orders) <= ORDER_S:
                self._changed.setdefault(stay.row.id, stay)
        self._writing = ((), [])

    def put_back(self) -> None:
        """What was taken could not be written: with what has changed since, next time."""
        stays, windows = self._writing
        self._changed = OrderedDict((stay.row.id, stay) for stay in (*stays, *self._changed.values()))
        while len(self._changed) > WAITING_MAX:
            self._changed.popitem(last=False)
        self._windows = [*windows, *self._windows][-WAITING_MAX:]
        self._writing = ((), [])

    def tell_all(self) -> None:
        """The file is another one: it is told of whoever is there."""
        for stay in self._here.values():
            self._changed.setdefault(stay.row.id, stay)

    def unwritten(self) -> "Changes":
        """What the file does not know yet: stays that have changed, and windows that are open or have closed."""
        now = self._now()
        opened = [WindowRow(application, since, max(since, now)) for application, since in self._open.items()]
        stays, windows = self._writing
        return _changes((*stays, *self._changed.values()), [*windows, *self._windows, *self._closed.values(), *opened])

    def end_all(self) -> None:
        """The box stops: whoever is there is so until now."""
        for build in list(self._here):
            self._leaving[build] = "box stopped"
            self._left(build)
        for application in list(self._open):
            self.window_closed(application)

    def forget_tenant(self, tenant: str) -> None:
        """Nothing of a tenant that is gone is told to another one of its name."""
        own = f"{tenant}/"
        writing, windows_written = self._writing
        for stay in (*self._known(), *writing):  # what is being written may have to be put back
            left = [one for one in stay.row.applications.split() if not one.startswith(own)]
            stay.row = stay.row._replace(applications=" ".join(left))
        for windows in (self._open, self._closed):
            for application in [one for one in windows if one.startswith(own)]:
                del windows[application]
        self._windows = [one for one in self._windows if not one.application.startswith(own)]
        self._writing = writing, [one for one in windows_written if not one.application.startswith(own)]

    # -- inside --------------------------------------------------------------------------------------------------------

    def _known(self) -> Iterable[_Stay]:
        """Each once."""
        return {id(stay): stay for stay in (*self._here.values(), *self._changed.values())}.values()

    def _now(self) -> float:
        return self._clock.wall_now().timestamp()

    def _came(self, build: str, facts: Mapping[str, Any], how: str) -> None:
        self._left(build, "woken" if how == "woken" else "")
        applications = [str(one) for one in facts.get("applications", ())]
        order = self._order("to", build, applications)
        self._begin(build, facts, how, order, ResidencyState.RESIDENT)

    def _begin(
        self, build: str, facts: Mapping[str, Any], how: str, order: Order | None, state: ResidencyState
    ) -> None:
        applications = [str(one) for one in facts.get("applications", ())]
        variant = next((name for one in applications for name in self._variants_of(one, build)), "")
        size = int(facts.get("bytes", 0))
        row = StayRow(
            self._next_id,
            self._now(),
            None,
            build,
            variant,
            " ".join(applications),
            state.value,
            size,
            how,
            None,
            "",
            None,
        )
        self._next_id += 1
        self._here[build] = stay = _Stay(row, order)
        self._changed[row.id] = stay
        while len(self._changed) > WAITING_MAX:
            self._changed.popitem(last=False)

    def _left(self, build: str, how: str = "") -> None:
        stay = self._here.pop(build, None)
        how = self._leaving.pop(build, how) or "unloaded"
        if stay is None:
            return
        applications = stay.row.applications.split()
        if stay.row.state == ResidencyState.RESIDENT.value and how in ("evicted", "released"):
            stay.went = self._order("from", build, applications)
        stay.row = stay.row._replace(until=max(stay.row.since, self._now()), left_by=how)
        self._changed[stay.row.id] = stay

    def _order(self, way: str, build: str, applications: Sequence[str]) -> Order | None:
        """The decision that ordered a change, which orders no second one."""
        now = self._now()
        found: Order | None = None
        for application in applications:
            for variant in (*self._variants_of(application, build), None):
                key = (application, variant, way)
                order = self._orders.pop(key, None)
                if order is not None and abs(now - order.at_s) <= ORDER_S:
                    found = found or order
        return found


class Changes(NamedTuple):
    """Rows for the file; of a stay that is there twice the later one counts."""

    stays: list[StayRow]
    reasons: list[ReasonRow]
    windows: list[WindowRow]


def _changes(stays: Iterable[_Stay], windows: list[WindowRow]) -> Changes:
    known = {stay.row.id: stay for stay in stays}.values()
    orders = (order for stay in known for order in (stay.came, stay.went) if order is not None)
    reasons = {
        order.number: ReasonRow(order.number, order.reason, " ".join(sorted(order.tenants)))
        for order in orders
        if order.number is not None
    }
    return Changes([stay.as_row() for stay in known], list(reasons.values()), windows)


def _orders_of(facts: Mapping[str, Any]) -> Iterable[tuple[str, str | None, str]]:
    """What a decision changes, for every application that a name in it stands for."""
    plan, sharing = facts.get("plan"), facts.get("sharing", {})
    if isinstance(plan, ResidencyPlan):
        changes = [(one.application, one.before, one.after) for one in plan.changes]
    else:
        answer: Mapping[str, Any] = facts["answer"]
        changes = [(one["application"], one["from"], one["to"]) for one in answer["actions"]]
        if answer.get("outcome") == "cold" and facts.get("application"):
            yield str(facts["application"]), None, "to"
    for name, before, after in changes:
        for application in sharing.get(name, (name,)):
            if before is not None:
                yield application, before, "from"
            if after is not None:
                yield application, after, "to"


def _reason_of(facts: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """The words, and the tenants that they name."""
    problem, plan = facts["problem"], facts.get("plan")
    if isinstance(plan, ResidencyPlan):
        reason = plan.reason
        names = {state.name for state in problem.applications} if isinstance(problem, ResidencyProblem) else set()
        shares = {share.name for share in problem.tenants} if isinstance(problem, ResidencyProblem) else set()
    else:
        reason = str(facts["answer"]["reason"])
        names = {str(row["application"]) for row in problem.get("resident", ()) if row["application"] is not None}
        shares = set()
    tenants = shares | {name.partition("/")[0] for name in names}
    named = {one for one in tenants if one in reason and re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w-])", reason)}
    return reason[:_REASON_MAX], frozenset(named)
