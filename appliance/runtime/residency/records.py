"""What the arbiter decided, told to the decision sink once: a question is often asked twice, for all variants of an
application and then for the one that is loaded, and again whenever something changes while a load waits for room.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.units import BYTES_PER_MB
from appliance.policies.residency.base import Change, ResidencyPlan, ResidencyProblem
from appliance.policies.residency.neighbours import NeighbourPlan, NeighbourProblem
from appliance.runtime.decisions.neighbours import brought
from appliance.runtime.memory.room import ResidentBuild, RoomPlan, RoomProblem
from appliance.runtime.ports import DecisionSink
from appliance.runtime.residency.groups import VariantGroup, VariantGroups

_SAME_NS = 100 * NS_PER_MS
"""A load that begins so soon after a plan is the plan's own."""
RULES: Mapping[str, str] = {
    "last use": "no policy was asked: the least recently used builds leave, expected ones last",
    "process": "a process of the box begins for a request: the policy was asked as for a model of the process's tenant",
    "patience": "no policy was asked: a request waits so long for the windows of others to close",
    "last resort": "no policy was asked: a request has waited in vain, so the least recently used leave, and expected "
    "ones get their smallest variants",
    "nobody's": "no policy was asked: builds leave that are no application's best one in memory",
    "neighbours": "no policy was asked: neighbours of the variants of sessions leave where memory is needed",
    "ceiling": "no policy was asked: the tenant may take no more memory",
}
"""Decisions of the arbiter itself, and why `appliance plan` has no answer to them."""


@dataclass(slots=True)
class _Said:
    """What was recorded last for an application. `since_ns`: of the load that it led to; None until there is one."""

    at_ns: int
    is_refusal: bool
    changes: frozenset[Change]
    since_ns: int | None = None
    rule: str = ""


class Records:
    """One record a decision. Event-loop thread only."""

    def __init__(self, groups: VariantGroups, decisions: DecisionSink, policy_name: str) -> None:
        self._groups = groups
        self._decisions = decisions
        self._policy_name = policy_name
        self._said: dict[str, _Said] = {}

    def planned(self, problem: ResidencyProblem, plan: ResidencyPlan, since_ns: int | None = None) -> None:
        """The policy has been asked about all variants, before anything is loaded. `since_ns`: since when a request
        waits for it; one that is refused again is told of once.
        """
        if not plan.changes and (plan.outcome == "warm" or _is_again(problem.now_ns, since_ns)):
            return
        if problem.intent != "serve" and self._is_under_way(problem, plan):
            return
        said = _Said(problem.now_ns, not plan.changes, frozenset(plan.changes))
        loaded = {change.application for change in plan.changes if change.after is not None}
        for name in loaded | ({problem.request} if problem.request is not None else set()):
            self._said[name] = said
        self._record(problem, plan)

    def answered(self, name: str, problem: ResidencyProblem, plan: ResidencyPlan, since_ns: int | None) -> None:
        """The policy has been asked about one variant of a group, for a load that began at `since_ns`.

        Told unless the plan before said as much.
        """
        if not plan.changes and (plan.outcome == "warm" or _is_again(problem.now_ns, since_ns)):
            return
        is_refusal, changes = not plan.changes, frozenset(plan.changes)
        said = self._of_load(name, problem.now_ns, since_ns)
        if said is not None and said.is_refusal is is_refusal and changes <= said.changes:
            return
        self._said[name] = _Said(problem.now_ns, is_refusal, changes, since_ns)
        self._record(problem, plan)

    def ruled(self, rule: str, name: str | None, problem: RoomProblem, plan: RoomPlan) -> None:
        """The arbiter itself has decided, by one of `RULES`, for a group, a process or nobody in particular."""
        if problem.is_trial or (plan.sufficient and not plan.victims):
            return
        asker = name or problem.build_id or problem.tenant or ""
        said = self._of_load(asker, problem.now_ns, problem.since_ns)
        if said is not None and said.rule == rule:
            return
        if not plan.sufficient and plan.again_ns is None and self._is_refused(asker, problem.now_ns):
            return
        if asker:
            self._said[asker] = _Said(problem.now_ns, not plan.sufficient, frozenset(), problem.since_ns, rule)
        self._decisions.record("residency", self._facts(rule, name, problem, plan))

    def neighbour(self, group: VariantGroup, problem: NeighbourProblem, plan: NeighbourPlan) -> None:
        """A neighbour of what sessions use at a group is brought into memory that is free."""
        facts = brought(group.name, group.applications, problem, plan)
        self._decisions.record("neighbours", {**facts, "asker": group.tenant})

    def forget(self, name: str) -> None:
        """The group is gone, or what it asked for has been answered."""
        self._said.pop(name, None)

    def _is_under_way(self, problem: ResidencyProblem, plan: ResidencyPlan) -> bool:
        """Whether all of it was decided a moment ago: the load that was begun then has no memory yet, so the policy
        saw nothing of it.
        """
        recent = [self._said.get(change.application) for change in plan.changes if change.after is not None]
        known = {
            change
            for said in recent
            if said is not None and problem.now_ns - said.at_ns <= _SAME_NS
            for change in said.changes
        }
        return bool(plan.changes) and known.issuperset(plan.changes)

    def _is_refused(self, name: str, now_ns: int) -> bool:
        """Whether the policy refused a moment ago: a variant that it does not know is tried after those that it does,
        for the same request.
        """
        said = self._said.get(name)
        return said is not None and said.is_refusal and not said.rule and now_ns - said.at_ns <= _SAME_NS

    def _of_load(self, name: str, now_ns: int, since_ns: int | None) -> _Said | None:
        """What was said of the load that began at `since_ns`, or of the plan that led to it."""
        said = self._said.get(name)
        if said is None or since_ns is None:
            return None
        if said.since_ns is None and now_ns - said.at_ns <= _SAME_NS:
            said.since_ns = since_ns
        return said if said.since_ns == since_ns else None

    def _record(self, problem: ResidencyProblem, plan: ResidencyPlan) -> None:
        facts: dict[str, object] = {
            "problem": problem,
            "plan": plan,
            "policy": self._policy_name,
            "sharing": self._groups.sharing(),
        }
        if not plan.changes:
            facts["asker"] = _tenant_of(problem.request)
            facts["key"] = (problem.request, plan.outcome)
        self._decisions.record("residency", facts)

    def _facts(self, rule: str, name: str | None, problem: RoomProblem, plan: RoomPlan) -> dict[str, object]:
        victims = [b for b in problem.resident if b.build_id in plan.victims]
        names = {name for build in victims for name in self._groups.users_of(build.build_id)} | (
            {name} if name else set()
        )
        after = {r.victim: self._groups.variant_of(r.build_id) for r in plan.replacements}
        outcome = "waits" if plan.again_ns is not None else "cold" if plan.sufficient else "failed"
        answer: dict[str, Any] = {
            "outcome": outcome if problem.build_id or problem.tenant is not None else "shrunk",
            "actions": [
                {
                    "application": self._name(b),
                    "from": self._groups.variant_of(b.build_id),
                    "to": after.get(b.build_id),
                }
                for b in victims
            ],
            "reason": plan.reason,
        }
        if plan.again_ns is not None:
            answer["until_s"] = (plan.again_ns - problem.now_ns) / NS_PER_S
        facts: dict[str, object] = {
            "application": name,
            "concerned": tuple((id, id.partition("/")[0]) for id in sorted(names)),
            "problem": {
                "kind": "residency",
                "plan": None,
                "why": RULES[rule],
                "rule": rule,
                "request": name,
                "need_mb": problem.need_bytes / BYTES_PER_MB,
                "free_mb": problem.free_bytes / BYTES_PER_MB,
                "resident": [self._row(build, problem.now_ns) for build in problem.resident],
            },
            "answer": answer,
        }
        if not plan.sufficient:
            facts["asker"] = _tenant_of(name) if problem.tenant is None else problem.tenant
            facts["key"] = (name or problem.build_id or problem.tenant, rule)
        return facts

    def _row(self, build: ResidentBuild, now_ns: int) -> dict[str, Any]:
        return {
            "application": self._name(build),
            "variant": self._groups.variant_of(build.build_id),
            "mb": build.bytes / BYTES_PER_MB,
            "pinned": build.pinned,
            "idle_s": (now_ns - build.last_used_ns) / NS_PER_S,
        }

    def _name(self, build: ResidentBuild) -> str | None:
        group = self._groups.of_build(build.build_id)
        return group.name if group is not None else next(iter(self._groups.users_of(build.build_id)), None)


def _is_again(now_ns: int, since_ns: int | None) -> bool:
    """Whether a load that began at `since_ns` has been asked about before."""
    return since_ns is not None and now_ns > since_ns


def _tenant_of(application: str | None) -> str | None:
    return None if application is None else application.partition("/")[0]
