"""Between requests: absent floors first, then wishes, then upgrades into what is free, by value per byte. Part of our own policy.

A floor may take the upgrades of minimalists; a wish and an upgrade take free memory only. Nothing that is pinned is touched, and no floor leaves.
"""

from dataclasses import replace

from appliance.policies.eviction import ladder
from appliance.policies.eviction.base import ApplicationState, Change, Option, ResidencyPlan, ResidencyProblem
from appliance.policies.eviction.exchange import best_exchange, cheapest_first
from appliance.policies.eviction.requester import wanted_options
from appliance.policies.eviction.space import Space, bounded
from appliance.policies.eviction.victims import NO_WISH, change, make_room, replaced, unloaded, victims
from appliance.policies.eviction.worth import gain, intensity_rps, swap_cost, urgency

_CLEARLY = 0.9
"""An application gives way whose urgency is at most this share of the other's: not for a trifle, or two would change places again and again."""


def rebalance(problem: ResidencyProblem) -> ResidencyPlan:
    """`cold` where something is loaded, else `warm`."""
    draft = _Draft(problem)
    draft.bring_floors()
    draft.bring_wishes()
    draft.upgrade()
    changes = draft.changes() or _swapped_floors(problem) or _for_the_next(problem)
    if not changes:
        return ResidencyPlan("warm", None, (), "nothing better fits")
    reason = ", ".join(f"{c.application}: {c.before or 'absent'} to {c.after}" for c in changes)
    return ResidencyPlan("cold", None, changes, reason)


def _for_the_next(problem: ResidencyProblem) -> tuple[Change, ...]:
    """The application whose request is predicted next takes upgrades of those whose is later, before its window opens: then no request meets the load."""
    coming = [
        a for a in problem.applications if a.next_request_ns is not None and not a.pinned and a.resident is not None
    ]
    if not coming:
        return ()
    asker = min(coming, key=lambda a: (a.next_request_ns or 0, a.name))
    question = replace(problem, request=asker.name, intent="procure")
    wanted = wanted_options(question, asker, ladder.resident(asker))
    found = [v for v in cheapest_first(question) if v.level == NO_WISH]
    chosen = best_exchange(question, asker, wanted, found) if wanted else None
    if chosen is None:
        return ()
    option, others = chosen
    changes = (*others, Change(asker.name, asker.resident, option.name))
    # Nobody asks: no tenant goes below its guarantee, the next one's own neither.
    return changes if bounded(replace(problem, request=None), changes) else ()


def _swapped_floors(problem: ResidencyProblem) -> tuple[Change, ...]:
    """Where floors do not all fit: the absent application that is most urgent takes the place of those that are clearly less so, least urgent first."""
    absent = [a for a in problem.applications if a.resident is None and not a.pinned]
    urgencies = {a.name: urgency(problem, a) for a in problem.applications}
    found = sorted(
        (v for v in victims(problem, unloaded) if v.level == NO_WISH),
        key=lambda v: (urgencies[v.application.name], v.application.name),
    )
    for asker in sorted(absent, key=lambda a: (-urgencies[a.name], a.name)):
        given: list[Change] = []
        own = Change(asker.name, None, ladder.floor(asker).name)
        for victim in found:
            if urgencies[victim.application.name] > _CLEARLY * urgencies[asker.name]:
                break
            given.append(change(victim))
            if bounded(problem, (*given, own)):
                return (*given, own)
    return ()


class _Draft:
    """The residents while the plan is made; reductions come before loads when it is enacted."""

    def __init__(self, problem: ResidencyProblem) -> None:
        self._problem = problem
        self._space = Space(problem)
        self._applications = sorted(problem.applications, key=lambda a: a.name)
        self._intensity = {a.name: intensity_rps(problem, a) for a in self._applications}
        self._held = {a.name: ladder.resident(a) for a in self._applications}
        self._reduced: dict[str, Change] = {}
        self._loaded: dict[str, Option] = {}

    def changes(self) -> tuple[Change, ...]:
        """In the order in which they keep the bound; the last loads are left out where peaks do not fit."""
        by_name = self._problem.by_name
        loads = [Change(name, by_name[name].resident, option.name) for name, option in self._loaded.items()]
        while loads and not bounded(self._problem, (*self._reduced.values(), *loads)):
            loads.pop()
        return (*self._reduced.values(), *loads) if loads else ()

    def bring_floors(self) -> None:
        """Absent floors, those most likely to be needed per byte first; minimalists' upgrades give way."""
        absent = [a for a in self._applications if self._held[a.name] is None and not a.pinned]
        floors = {a.name: ladder.floor(a) for a in absent}
        absent.sort(key=lambda a: (-self._intensity[a.name] / floors[a.name].bytes, a.name))
        reducible = victims(self._problem, replaced) if absent else []
        reducible.sort(key=lambda v: (self._intensity[v.application.name], v.application.name))
        for application in absent:
            unmoved = [v for v in reducible if v.level == NO_WISH and v.application.name not in self._reduced]
            changes = make_room(self._space, application, floors[application.name], unmoved)
            if changes is None:
                continue
            given = {change.application: change for change in changes}
            for victim in unmoved:
                if victim.application.name in given:
                    self._space.take(victim.application, victim.loaded, victim.after)
                    self._held[victim.application.name] = victim.after
                    self._reduced[victim.application.name] = given[victim.application.name]
            self._take(application, floors[application.name])

    def bring_wishes(self) -> None:
        """Wished variants that fit into free memory, the higher priority first."""
        wished = [
            (-wish.priority, application.name, ladder.variant(application, wish.variant), application)
            for application in self._applications
            for wish in application.wishes
            if wish.until_ns >= self._problem.now_ns and any(o.name == wish.variant for o in ladder.ladder(application))
        ]
        wished.sort(key=lambda entry: (entry[0], entry[1], entry[2].name))
        for _, _, option, application in wished:
            held = self._held[application.name]
            if (held is None or option.accuracy > held.accuracy) and self._fits(application, option):
                self._take(application, option)

    def upgrade(self) -> None:
        """The step that is worth most per byte, again and again, while one fits."""
        steps = [step for application in self._applications for step in self._steps(application)]
        while steps:
            steps.sort(key=lambda step: (-step[0], step[1].name, step[2].name))
            fitting = next((step for step in steps if self._fits(step[1], step[2])), None)
            if fitting is None:
                return
            _, application, option = fitting
            self._take(application, option)
            steps = [step for step in steps if step[1] is not application] + self._steps(application)

    def _steps(self, application: ApplicationState) -> list[tuple[float, ApplicationState, Option]]:
        """Value per byte of each better variant."""
        held = self._held[application.name]
        if held is None or application.pinned or application.name in self._reduced:
            return []
        found = []
        for option in ladder.ladder(application):
            if option.accuracy <= held.accuracy or self._space.short_bytes(held, option) > 0:
                continue
            worth = gain(self._problem, application, self._intensity[application.name], held, option)
            if self._space.short_bytes(held, option, beside=True) > 0:
                worth -= swap_cost(self._problem, application, option)
            if worth > 0:
                found.append((worth / max(option.bytes - held.bytes, 1), application, option))
        return found

    def _fits(self, application: ApplicationState, option: Option) -> bool:
        if application.pinned or application.name in self._reduced:
            return False
        held = self._held[application.name]
        return (
            self._space.short_bytes(held, option) <= 0
            and self._space.over_ceiling_bytes(application, held, option) <= 0
        )

    def _take(self, application: ApplicationState, option: Option) -> None:
        self._space.take(application, self._held[application.name], option)
        self._held[application.name] = option
        self._loaded[application.name] = option
