"""Between requests: what memory should hold, told anew from nothing, and the changes that lead there.

Part of our own policy.

What each variant is worth says `worth.py`; what is there already is worth more than what must be loaded first, and
nobody gives way for a trifle: as predictions move, so would variants, each of which is loaded for nothing. Which
variants together are worth most is a knapsack with several choices for each application: answered exactly where there
are few (`knapsack.py`; on Table II that is 0.2 points of utility), else a step at a time, each time the one that is
worth most per byte: somebody's floor, or an upgrade.
"""

from collections.abc import Generator, Iterable, Mapping
from heapq import heapify, heappop, heappush

from appliance.policies.residency.base import (
    PROMISED,
    ApplicationState,
    Change,
    Option,
    ResidencyPlan,
    ResidencyProblem,
)
from appliance.policies.residency.knapsack import Choice, best_choices
from appliance.policies.residency.space import Space, bounded
from appliance.policies.residency.steps import PART, Steps
from appliance.policies.residency.victims import NO_WISH, broken_wish
from appliance.policies.residency.windows import is_maximalist
from appliance.policies.residency.worth import Outlook, Worth

_CHOICES_MAX = 24
"""Variants of all applications together, up to which the best combination is looked for: 0.3 ms for eight
applications with three variants each.
"""
_MOVE_POINTS = 0.1
"""Who has a variant keeps it where others would gain no more than this by its memory, in points of accuracy × requests
× its weight: the loads, of what comes now and of what left when it comes back, keep the processor from others. A cold
start is some six hundred times as bad. Having nothing counts as much, or who stays would be in the way of who comes
though nobody expects a request of either. What sleeps when it leaves is had again for next to nothing.
"""
Pauses = Generator[None, None, None]
Step = tuple[float, str, Option]
"""What it is worth per byte, the application, the variant that it gets."""


def rebalance(problem: ResidencyProblem) -> Steps:
    """`cold` where something is loaded, else `warm`. Nobody leaves but for somebody who comes.

    In one part where there are few applications.
    """
    draft = _Draft(problem)
    yield from draft.weigh()
    yield from draft.hand_out()
    changes = draft.changes()
    if not changes:
        return ResidencyPlan("warm", None, (), "nothing better fits")
    reason = ", ".join(change.told for change in changes)
    return ResidencyPlan("cold", None, changes, reason)


class _Draft:
    """Who holds what, beginning with what nobody may be without: variants that are pinned, in their windows, or
    wished for.
    """

    def __init__(self, problem: ResidencyProblem) -> None:
        self._problem = problem
        self._space = Space(problem)
        self._applications: dict[str, ApplicationState] = {}
        self._held: dict[str, Option | None] = {}
        self._worth: dict[str, dict[str | None, float]] = {}
        self._options: dict[str, list[tuple[int, int, float, Option]]] = {}
        """Of each choice its bytes, those that must be free for it, what it is worth, and itself."""

        self._largest_bytes: dict[str, int] = {}

    def weigh(self) -> Pauses:
        """What everybody's variants are worth, and what nobody may be without."""
        problem, outlook, free_bytes = self._problem, Outlook(self._problem), self._space.free_bytes
        able = sorted((a for a in problem.applications if not a.pinned), key=lambda a: a.name)
        for first in range(0, len(able), PART):
            if first:
                yield
            self._weigh(outlook.worths(able[first : first + PART]))
        self._grant_wishes(free_bytes)

    def _weigh(self, weighed: Iterable[Worth]) -> None:
        for application, nothing, worths in weighed:
            name = application.name
            least = _least(self._problem, application)
            self._space.take(application, application.loaded, least)
            self._applications[name] = application
            self._held[name] = least
            loaded = application.loaded
            stay, least_bytes = (0.0, 0) if loaded is None else (_move_points(application, loaded), loaded.bytes)
            self._options[name] = options = [
                (
                    o.bytes,
                    o.bytes if o is loaded else o.peak_bytes,
                    worth + stay if o.bytes >= least_bytes else worth,
                    o,
                )
                for o, worth in zip(application.choices, worths, strict=True)
            ]
            self._largest_bytes[name] = max([size for size, _, _, _ in options])
            self._worth[name] = {None: nothing - _move_points(application, application.floor)}
            self._worth[name].update([(option.name, own) for _, _, own, option in options])

    def hand_out(self) -> Pauses:
        """To the choices that are worth most together; where there are many, or tenants have bounds, step by step."""
        if (
            self._problem.tenants
            or sum([len(application.choices) for application in self._applications.values()]) > _CHOICES_MAX
        ):
            yield from self._hand_out_by_steps()
            return
        items = [self._all_choices(name) for name in self._applications]
        for name, choice in zip(self._applications, best_choices(items, self._space.free_bytes), strict=True):
            if choice.option is not None and choice.bytes > 0:
                self._take(name, choice.option)

    def _all_choices(self, name: str) -> list[Choice]:
        held, worth, application = self._held[name], self._worth[name], self._applications[name]
        loaded = application.loaded
        size = 0 if held is None else held.bytes
        larger = (o for o in application.choices if o.bytes > size)
        return [
            Choice(0, 0, worth[None if held is None else held.name], held),
            *(
                Choice(o.bytes - size, (o.bytes if o is loaded else o.peak_bytes) - size, worth[o.name], o)
                for o in larger
            ),
        ]

    def _hand_out_by_steps(self) -> Pauses:
        """The step that is worth most per byte, again and again, while one fits."""
        order = {name: place for place, name in enumerate(sorted(self._applications, reverse=True))}
        steps: list[tuple[float, int, Step]] = []
        for count, name in enumerate(self._applications, 1):
            step = self._step(name)
            if step is not None:
                steps.append(self._ranked(step, order))
            if count % PART == 0:
                yield
        heapify(steps)
        taken = 0
        while steps:
            taken += 1
            if taken % PART == 0:
                yield
            _, _, (_, name, option) = heappop(steps)
            if self._fits(name, option):
                self._take(name, option)
            again = self._step(name)
            if again is not None:
                heappush(steps, self._ranked(again, order))

    @staticmethod
    def _ranked(step: Step, order: Mapping[str, int]) -> tuple[float, int, Step]:
        """The step that is worth most first, of equals the last by name."""
        return -step[0], order[step[1]], step

    def changes(self) -> tuple[Change, ...]:
        """Falls before loads, the load that gains most first."""
        demotions, loads = list[Change](), list[tuple[float, Change]]()
        for name, application in self._applications.items():
            held, loaded = self._held[name], application.loaded
            if held is loaded:
                continue
            change = Change(name, application.resident, None if held is None else held.name)
            if held is None or (loaded is not None and held.bytes < loaded.bytes):
                demotions.append(change)
            else:
                worth = self._worth[name]
                loads.append((worth[change.before] - worth[change.after], change))
        demotions.sort(key=lambda change: (change.after is not None, change.application))
        loads.sort(key=lambda entry: (entry[0], entry[1].application))
        return _within_bounds(self._problem, demotions, [change for _, change in loads])

    def _grant_wishes(self, free_bytes: int) -> None:
        """Wished variants that fit into memory that is free now, the higher priority first."""
        now_ns = self._problem.now_ns
        wished = [
            (-wish.priority, name, wish.variant)
            for name, application in self._applications.items()
            for wish in application.wishes
            if wish.priority < PROMISED
            and wish.until_ns >= now_ns
            and any(o.name == wish.variant for o in application.ladder)
        ]
        for _, name, variant in sorted(wished):
            application = self._applications[name]
            option, loaded = application.variant(variant), application.loaded
            grown = option.peak_bytes - (0 if loaded is None else loaded.bytes)
            if (
                (loaded is None or option.accuracy > loaded.accuracy)
                and grown <= free_bytes
                and self._fits(name, option)
            ):
                free_bytes -= grown
                self._take(name, option)

    def _step(self, name: str) -> Step | None:
        """The application's next one that fits and is worth most per byte."""
        held = self._held[name]
        name_of_held, size = (None, 0) if held is None else (held.name, held.bytes)
        if size >= self._largest_bytes[name]:
            return None
        base, free_bytes = self._worth[name][name_of_held], self._space.free_bytes + size
        found: Option | None = None
        best = 0.0
        for option_bytes, need_bytes, worth, option in self._options[name]:
            gain, grown = worth - base, option_bytes - size
            if grown <= 0 or gain <= 0 or need_bytes > free_bytes or (found is not None and gain / grown <= best):
                continue
            if self._space.over_ceiling_bytes(self._applications[name], held, option) <= 0:
                found, best = option, gain / grown
        return None if found is None else (best, name, found)

    def _fits(self, name: str, option: Option) -> bool:
        application, held = self._applications[name], self._held[name]
        need = option.bytes if option is application.loaded else option.peak_bytes
        if need - (0 if held is None else held.bytes) > self._space.free_bytes:
            return False
        return self._space.over_ceiling_bytes(application, held, option) <= 0

    def _take(self, name: str, option: Option) -> None:
        self._space.take(self._applications[name], self._held[name], option)
        self._held[name] = option


def _move_points(application: ApplicationState, option: Option) -> float:
    """What it costs, beside what requests lose, that the option leaves for others."""
    return 0.0 if option.sleeps else _MOVE_POINTS * application.weight


def _least(problem: ResidencyProblem, application: ApplicationState) -> Option | None:
    """The smallest that it may be left with: what it has while its window is open; else what breaks no wish."""
    loaded = application.loaded
    if loaded is None or is_maximalist(application, problem):
        return loaded
    if not application.wishes:
        return None
    lower = sorted((o for o in application.ladder if o.bytes < loaded.bytes), key=lambda o: (o.bytes, o.name))
    unbroken = (o for o in (None, *lower) if broken_wish(application, loaded, o, problem.now_ns) == NO_WISH)
    return next(unbroken, loaded)


def _within_bounds(problem: ResidencyProblem, demotions: list[Change], loads: list[Change]) -> tuple[Change, ...]:
    """All of them, or where that breaks a bound those that keep every bound at their moment, less the demotions that
    nobody needs then.
    """
    if not loads:
        return ()
    if bounded(problem, (*demotions, *loads)):
        return (*demotions, *loads)
    kept: list[Change] = []
    for change in (*demotions, *loads):
        if bounded(problem, (*kept, change)):
            kept.append(change)
    if not any(load in kept for load in loads):
        return ()
    for demotion in demotions:
        rest = [change for change in kept if change is not demotion]
        if bounded(problem, tuple(rest)):
            kept = rest
    return tuple(kept)
