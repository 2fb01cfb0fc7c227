"""Plans become wishes to whoever serves: how many items a run of a build waits for and how long, which variants stay in
memory, and on which kind of processor a content serves (X-04). Nothing is queued or kept in memory here.

A variant that no plan has any more is wished for a while longer, so that a load that goes up and down does not bring it
again and again (the turn-off delay, SC-23). Event-loop thread only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.errors import ApplianceError
from appliance.domain.pipeline import Ask, Pipeline, PipelinePlan
from appliance.domain.slots import PlannedRows
from appliance.policies.allocation.several import RUNS_FIRST
from appliance.policies.residency.base import IN_USE, Wish
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.pipelines.accounts import HOST
from appliance.runtime.pipelines.problem import Machine
from appliance.runtime.servable import Servable

TURNED_OFF = IN_USE - 1
"""Priority of wishes for what no plan has any more."""
SOURCE = "pipelines"
"""Whose wishes they are."""


@dataclass(frozen=True, slots=True)
class Actuators:
    """What of the box goes by the plans."""

    catalogue: Catalogue
    wish: Callable[[str, tuple[Wish, ...], str], None]
    """Which variants of an application to bring and to keep."""
    plan_waits: Callable[[Mapping[str, PlannedRows]], None]
    """By build: what its runs wait for, in place of what was said before."""
    wish_kinds: Callable[[Mapping[str, str]], None]
    """Content → the kind of processor that it is to serve on, in place of what was said before."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A plan that holds."""

    pipeline: Pipeline
    plan: PipelinePlan
    machine: Machine
    applications: Mapping[str, str]
    """Stage that asks → id of its application."""


@dataclass(slots=True)
class _Use:
    """A variant of an application in the plans."""

    last_ns: int
    is_used: bool = True


class Enacting:
    """The wishes of all plans."""

    def __init__(self, actuators: Actuators, turn_off_ns: int = 30 * NS_PER_S) -> None:
        self._actuators = actuators
        self._turn_off_ns = turn_off_ns
        self._plans: dict[str, _Held] = {}
        self._uses: dict[str, dict[str, _Use]] = {}
        """By application and variant."""
        self._told_ns: int | None = None
        self._waits: dict[str, PlannedRows] = {}
        self._kinds: dict[str, str] = {}

    def put(self, pipeline: Pipeline, plan: PipelinePlan | None, machine: Machine) -> None:
        """This plan of a pipeline holds from now on; `enact` follows."""
        if plan is None:
            self._plans.pop(pipeline.id, None)
        else:
            asks = {stage.name: stage.application_id for stage in pipeline.stages if isinstance(stage, Ask)}
            self._plans[pipeline.id] = _Held(pipeline, plan, machine, asks)

    def forget(self, pipeline_id: str) -> None:
        """The pipeline has gone; `enact` follows."""
        self._plans.pop(pipeline_id, None)

    def enact(self, now_ns: int) -> None:
        """Tell everybody what all plans want."""
        self._tell_waits()
        self._note_uses(now_ns)
        self._tell_uses(now_ns)

    def refresh(self, now_ns: int) -> None:
        """Wishes end by themselves: say them again in time."""
        if self._uses and (self._told_ns is None or now_ns - self._told_ns >= self._refresh_ns):
            self._note_uses(now_ns)
            self._tell_uses(now_ns)

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _refresh_ns(self) -> int:
        return max(NS_PER_S, self._turn_off_ns // 6)

    def _tell_waits(self) -> None:
        """Of a build that several stages share, the longest line and the shortest wait, which is none where a stage has
        no batches. Kinds: by the most items.

        A plan counts on b - 1 intervals between items, at the end of which the last item is only just due: a wait is
        half an interval longer, or runs would begin without that item and cost more than planned (SC-09).
        """
        lines: dict[str, int] = {}
        waits_ns: dict[str, int] = {}
        rates: dict[str, dict[str, float]] = {}
        planned: dict[str, set[str]] = {}
        """Content → applications and tenants of the plans that have it."""
        for held in self._plans.values():
            pipeline = held.pipeline
            own_ns: dict[tuple[str, str], int] = {}
            for row in held.plan.stages:
                servable = self._servable(held, row.stage, row.variant)
                of = held.machine.of.get(row.worker)
                if servable is None or of is None:
                    continue
                content = servable.variant.content_sha256
                if servable.parts is None:  # else it is on kinds of its own, by what each part takes there
                    own = rates.setdefault(content, {})
                    own[of.kind] = own.get(of.kind, 0.0) + row.rate_rps
                users = planned.setdefault(content, set())
                users |= {held.applications[row.stage], f"{pipeline.tenant}/"}
                place = row.stage, servable.build_id
                if row.batch > 1:
                    wait_ns = int(row.wait_ms * NS_PER_MS * (row.batch - 0.5) / (row.batch - 1))
                    own_ns[place] = min(own_ns.get(place) or wait_ns, wait_ns)
                    lines[servable.build_id] = max(lines.get(servable.build_id, 0), row.batch)
                else:  # what is left over of a stage with batches joins these
                    own_ns.setdefault(place, 0)
            for (_stage, build), wait_ns in own_ns.items():
                waits_ns[build] = min(waits_ns.get(build, wait_ns), wait_ns)
        longest_ns = self._longest_ns()
        waits = {
            build: PlannedRows(items, waits_ns[build], longest_ns) for build, items in lines.items() if waits_ns[build]
        }
        theirs = self._used_by_others(planned)
        kinds = {
            content: max(own, key=lambda kind: (own[kind], kind))
            for content, own in rates.items()
            if content not in theirs
        }
        if kinds != self._kinds:
            self._kinds = kinds
            self._actuators.wish_kinds(kinds)
        if waits != self._waits:
            self._waits = waits
            self._actuators.plan_waits(waits)

    def _longest_ns(self) -> int:
        """What may run first when a wait is over: no run is interrupted for one that has waited (as in eq. 5 of
        Jellyfish).
        """
        rows = (row for held in self._plans.values() for row in held.plan.stages if row.worker != HOST)
        longest_ms = max((row.latency_ms - row.wait_ms for row in rows), default=0.0)
        return int(RUNS_FIRST * longest_ms * NS_PER_MS)

    def _used_by_others(self, planned: Mapping[str, set[str]]) -> set[str]:
        """Of the contents of plans, those that somebody else serves who has no plan: a plan moves none of theirs."""
        found: set[str] = set()
        for entry in self._actuators.catalogue.entries() if planned else ():
            application = entry.application
            for servable in entry.servables.values():
                content = servable.variant.content_sha256
                if content in planned and planned[content].isdisjoint((application.id, f"{application.tenant}/")):
                    found.add(content)
        return found

    def _note_uses(self, now_ns: int) -> None:
        for own in self._uses.values():
            for use in own.values():
                use.is_used = False
        for held in self._plans.values():
            for row in held.plan.stages:
                if row.variant:
                    own = self._uses.setdefault(held.applications[row.stage], {})
                    own[row.variant] = _Use(now_ns)

    def _tell_uses(self, now_ns: int) -> None:
        self._told_ns = now_ns
        for application_id, own in list(self._uses.items()):
            for name, use in list(own.items()):
                if not use.is_used and now_ns - use.last_ns >= self._turn_off_ns:
                    del own[name]
            used_ns = max(self._turn_off_ns, 2 * self._refresh_ns)
            wishes = tuple(
                Wish(name, use.last_ns + used_ns, IN_USE)
                if use.is_used
                else Wish(name, use.last_ns + self._turn_off_ns, TURNED_OFF)
                for name, use in sorted(own.items())
            )
            self._actuators.wish(application_id, wishes, SOURCE)
            if not own:
                del self._uses[application_id]

    def _servable(self, held: _Held, stage: str, variant: str) -> Servable | None:
        if not variant:
            return None
        try:
            entry = self._actuators.catalogue.entry_for(held.pipeline.tenant, held.applications[stage])
        except ApplianceError:  # it has gone meanwhile
            return None
        return entry.servables.get(variant)
