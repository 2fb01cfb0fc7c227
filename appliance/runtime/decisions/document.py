"""Decisions as they are stored; those of a policy of residency or dispatch as the JSON that `appliance plan` reads and
writes, so that each can be replayed.

Called by the decision log's writer, in a thread; never on the inference path. Nanoseconds become seconds or
milliseconds, bytes megabytes of 10⁶.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.decisions import DecisionRecord
from appliance.domain.units import BYTES_PER_MB
from appliance.policies.dispatch.base import FOREVER, DispatchInput, DispatchPlan, Job
from appliance.policies.dispatch.partition import Partition
from appliance.policies.residency.base import ApplicationState, Option, ResidencyPlan, ResidencyProblem
from appliance.runtime.decisions.pipelines import pipeline_record
from appliance.runtime.decisions.sessions import session_record


def record_of(
    at: datetime.datetime,
    kind: str,
    facts: Mapping[str, object],
    times: int = 1,
    folded: Sequence[tuple[Mapping[str, object], int]] = (),
) -> DecisionRecord:
    """The record of a decision.

    That of a residency policy comes as `problem`, `plan`, `policy` and perhaps `sharing`; that of a dispatch policy
    with `application` and `concerned`; those on sessions and pipelines as `sessions` and `pipelines` have them. Any
    other one comes as it is kept:
    `application`, `concerned`, `problem` (with `plan` null and `why`, for `appliance plan`) and `answer`. `times`: how
    many decisions it stands for, `folded`: their problems, and how many had each.
    """
    problem, plan = facts["problem"], facts.get("plan")
    if isinstance(problem, ResidencyProblem) and isinstance(plan, ResidencyPlan):
        sharing: Any = facts.get("sharing", {})
        record = residency_record(at, problem, plan, str(facts["policy"]), sharing)
    elif kind == "dispatch":
        record = dispatch_record(at, facts)
    elif kind in ("adaptation", "offload"):
        record = session_record(at, kind, facts)
    elif kind == "pipeline":
        record = pipeline_record(at, facts)
    else:
        plain: Any = facts
        record = DecisionRecord(at, kind, plain["application"], plain["concerned"], plain["problem"], plain["answer"])
    if times == 1:
        return record
    others = [{"problem": problem, "times": count} for problem, count in folded]
    return replace(record, answer={**record.answer, "times": times, **({"folded": others} if others else {})})


def residency_record(
    at: datetime.datetime,
    problem: ResidencyProblem,
    plan: ResidencyPlan,
    policy: str,
    sharing: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> DecisionRecord:
    """The whole record of one decision.

    `sharing`: the ids of all applications that a name stands for, where it is more than one.
    """
    names = {change.application for change in plan.changes} | ({problem.request} if problem.request else set())
    concerned = {(id, _owner(id, problem.by_name[name])) for name in names for id in sharing.get(name, (name,))}
    return DecisionRecord(
        at,
        "residency",
        problem.request,
        tuple(sorted(concerned)),
        problem_json(problem, policy),
        answer_json(problem, plan),
        sharing={name: list(ids) for name, ids in sharing.items() if name in problem.by_name},
    )


def dispatch_record(at: datetime.datetime, facts: Mapping[str, Any]) -> DecisionRecord:
    """Which job runs next on which processor. Of a network in parts the operators are its parts, by their numbers, as
    far as they are left.
    """
    problem: DispatchInput = facts["problem"]
    plan: DispatchPlan = facts["plan"]
    names = _names(problem.jobs)
    asked = {
        "kind": "dispatch",
        "policy": facts["policy"],
        "now_ms": problem.now_ms,
        "transfer_ms": problem.transfer_ms,
        "processors": [{"name": one.name, "busy_until_ms": one.busy_until_ms} for one in problem.processors],
        "models": [_model(*one, name) for one, name in names.items()],
        "jobs": [_job(job, names[job.partition, job.fixed]) for job in problem.jobs],
    }
    answer = {
        "outcome": "run" if plan.decision else "none",
        "actions": [],
        **dispatch_answer(plan, {name: one for (one, _fixed), name in names.items()}),
    }
    return DecisionRecord(at, "dispatch", facts["application"], facts["concerned"], asked, answer)


def dispatch_answer(plan: DispatchPlan, cut: Mapping[str, Partition]) -> dict[str, Any]:
    """What a dispatch policy decided about networks by name, as `appliance plan` writes it."""
    decision = plan.decision
    return {
        "models": {
            name: {
                "units": [list(unit) for unit in one.units],
                "subgraphs": [{"ops": list(s.ops), "processors": list(s.latency_ms)} for s in one.subgraphs],
            }
            for name, one in cut.items()
        },
        "decision": decision
        and {
            "job": decision.job,
            "ops": list(decision.ops),
            "processor": decision.processor,
            "start_ms": decision.start_ms,
            "expected_latency_ms": decision.expected_latency_ms,
            "slack_ms": None if decision.slack_ms == FOREVER else decision.slack_ms,
        },
        "violated": list(plan.violated),
        "reason": plan.reason,
    }


def _names(jobs: Sequence[Job]) -> dict[tuple[Partition, str | None], str]:
    """A name for each network and where it stays. Not its own: who is shown the decision may not know whose it is."""
    found = dict.fromkeys((job.partition, job.fixed) for job in jobs)
    return {one: f"m{number}" for number, one in enumerate(found, 1)}


def _model(partition: Partition, fixed: str | None, name: str) -> dict[str, Any]:
    there = {op.name for op in partition.operators}
    return {
        "name": name,
        "ops": [
            {
                "name": op.name,
                "processors": sorted(op.processors),
                "inputs": [needed for needed in op.inputs if needed in there],
            }
            for op in partition.operators
        ],
        "latency_ms": {processor: dict(ms) for processor, ms in partition.latency_ms.items()},
        **({} if fixed is None else {"fixed": fixed}),
    }


def _job(job: Job, model: str) -> dict[str, Any]:
    due = {} if job.deadline_ms == FOREVER else {"slo_ms": job.deadline_ms - job.arrival_ms}
    held = {} if job.at is None else {"processor": job.at}
    queued = {} if job.queued_ms is None else {"queued_ms": job.queued_ms}
    told = {"name": job.name, "model": model, "arrival_ms": job.arrival_ms, "priority": job.priority}
    return {**told, **due, **held, **queued}


def problem_json(problem: ResidencyProblem, policy: str) -> dict[str, Any]:
    """Times count from the decision (`now_s` is 0): a clock that has run for months has more digits than a JSON
    number keeps.
    """
    document: dict[str, Any] = {
        "kind": "residency",
        "policy": policy,
        "intent": problem.intent,
        "now_s": 0.0,
        "memory_mb": problem.memory_bytes / BYTES_PER_MB,
        "history_window_s": problem.history_window_ns / NS_PER_S,
        "delta_s": problem.delta_ns / NS_PER_S,
        "applications": [_application(state, problem) for state in problem.applications],
        "request": problem.request,
    }
    if problem.tenants:
        document["tenants"] = _tenants(problem)
    return document


def answer_json(problem: ResidencyProblem, plan: ResidencyPlan) -> dict[str, Any]:
    """As `appliance plan` answers, without the time it took."""
    resident = {state.name: state.resident for state in problem.applications}
    resident.update((change.application, change.after) for change in plan.changes)
    held = sum(o.bytes for state in problem.applications for o in state.options if o.name == resident[state.name])
    return {
        "outcome": plan.outcome,
        "serve": plan.serve,
        "actions": [{"application": c.application, "from": c.before, "to": c.after} for c in plan.changes],
        "free_mb": (problem.memory_bytes - held) / BYTES_PER_MB,
        "reason": plan.reason,
    }


def _application(state: ApplicationState, problem: ResidencyProblem) -> dict[str, Any]:
    """Every field, defaults too, but a floor that no variant reaches: policies pass over it, and the reader of
    problems would refuse it.
    """
    now_ns = problem.now_ns
    is_reachable = any(option.accuracy >= state.accuracy_min for option in state.options)
    return {
        "name": state.name,
        "variants": [_variant(option) for option in state.options],
        "resident": state.resident,
        "pinned": state.pinned,
        "last_request_s": _since(state.last_request_ns, now_ns),
        "next_request_s": _since(state.next_request_ns, now_ns),
        "later_requests_s": [_since(at_ns, now_ns) for at_ns in state.later_requests_ns],
        "spread_s": problem.spread_ns_of(state) / NS_PER_S,
        "prediction_hit_rate": state.prediction_hit_rate,
        "unexpected_probability": problem.unexpected.get(state.name, 0.0),
        "rate_rps": problem.rate_rps_of(state),
        "tenant": state.tenant,
        "weight": state.weight,
        "accuracy_min": state.accuracy_min if is_reachable else 0.0,
        "keep": [
            {"variant": wish.variant, "until_s": _since(wish.until_ns, now_ns), "priority": wish.priority}
            for wish in state.wishes
        ],
    }


def _variant(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "size_mb": option.bytes / BYTES_PER_MB,
        "peak_mb": option.peak_bytes / BYTES_PER_MB,
        "accuracy": option.accuracy,
        "load_ms": option.load_ns / NS_PER_MS,
        "sleeps": option.sleeps,
    }


def _tenants(problem: ResidencyProblem) -> list[dict[str, Any]]:
    """Those with a share, and those without that have an application: the reader of problems wants every tenant
    named.
    """
    shares: list[dict[str, Any]] = [
        {
            "name": share.name,
            "guarantee_mb": share.guarantee_bytes / BYTES_PER_MB,
            "ceiling_mb": None if share.ceiling_bytes is None else share.ceiling_bytes / BYTES_PER_MB,
        }
        for share in problem.tenants
    ]
    others = {state.tenant for state in problem.applications} - {share.name for share in problem.tenants}
    return shares + [{"name": name, "guarantee_mb": 0.0, "ceiling_mb": None} for name in sorted(others)]


def _since(at_ns: int | None, now_ns: int) -> float | None:
    return None if at_ns is None else (at_ns - now_ns) / NS_PER_S


def _owner(id: str, state: ApplicationState) -> str:
    """The tenant of the application; `state.tenant` is that of its model, which may be shared."""
    tenant, slash, _ = id.partition("/")
    return tenant if slash else state.tenant
