"""Whether an answer of kind `residency` keeps every rule of its problem, from the written JSON alone; shares nothing
with the policies.
"""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

EPSILON = 1e-6


def broken(problem: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """What is wrong with an answer, in words; empty when nothing is."""
    faults: list[str] = []
    applications = {application["name"]: application for application in problem["applications"]}
    after = {name: application.get("resident") for name, application in applications.items()}
    for action in answer["actions"]:
        _action(problem, applications[action["application"]], action, after, faults)
        _instant(problem, after, action, faults)
        after[action["application"]] = action["to"]
    _outcome(problem, applications, answer, after, faults)
    _tenants(problem, applications, after, faults)
    free = problem["memory_mb"] - _held(applications, after)
    if abs(free - answer["free_mb"]) > EPSILON:
        faults.append(f"free_mb says {answer['free_mb']}, {free} are free")
    return faults


def needlessly_unloaded(problem: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """Applications that an answer leaves with nothing though their smallest variant would fit beside all else that it
    does, in whatever order that is done.
    """
    applications = {application["name"]: application for application in problem["applications"]}
    return [
        action["application"]
        for action in answer["actions"]
        if action["to"] is None and _may_be_replaced(problem, applications[action["application"]], action, answer)
    ]


def _may_be_replaced(
    problem: Mapping[str, Any], application: Mapping[str, Any], unload: Mapping[str, Any], answer: Mapping[str, Any]
) -> bool:
    will_do = [v for v in application["variants"] if _will_do(application, v["name"])] or application["variants"]
    smallest = min(will_do, key=lambda variant: float(variant["size_mb"]))
    if smallest["size_mb"] >= _mb(application, unload["from"]):
        return False
    *others, own = answer["actions"]
    replaced = {**unload, "to": smallest["name"]}
    unloads = [action for action in others if action["to"] is None and action is not unload]
    replacements = [action for action in others if action["to"] is not None]
    free_mb = answer["free_mb"] - smallest["size_mb"]
    return any(
        not broken(problem, {**answer, "actions": [*unloads, *ordered, own], "free_mb": free_mb})
        for ordered in permutations([*replacements, replaced])
    )


def is_maximalist(problem: Mapping[str, Any], application: Mapping[str, Any]) -> bool:
    """Now lies in [next - Δ - θ, next + Δ]."""
    predicted = application.get("next_request_s")
    if predicted is None:
        return False
    best = max(variant["accuracy"] for variant in application["variants"])
    theta = min(v["load_ms"] for v in application["variants"] if v["accuracy"] == best) / 1000
    now, delta = problem["now_s"], problem["delta_s"]
    return bool(predicted - delta - theta - EPSILON <= now <= predicted + delta + EPSILON)


def _variant(application: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next(variant for variant in application["variants"] if variant["name"] == name)


def _mb(application: Mapping[str, Any], name: str | None) -> float:
    return 0.0 if name is None else float(_variant(application, name)["size_mb"])


def _held(applications: Mapping[str, Mapping[str, Any]], residents: Mapping[str, str | None]) -> float:
    return sum(_mb(application, residents[name]) for name, application in applications.items())


def _action(
    problem: Mapping[str, Any],
    application: Mapping[str, Any],
    action: Mapping[str, Any],
    after: Mapping[str, str | None],
    faults: list[str],
) -> None:
    name = application["name"]
    if action["from"] != after[name]:
        faults.append(f"{name} has {after[name]}, not {action['from']}")
    if action["from"] == action["to"]:
        faults.append(f"{name} changes nothing")
    if name == problem["request"]:
        return
    if application.get("pinned"):
        faults.append(f"{name} is pinned")
    smaller = _mb(application, action["to"]) < _mb(application, action["from"])
    if smaller and is_maximalist(problem, application):
        faults.append(f"{name} is a maximalist")
    if action["to"] is not None and not _will_do(application, action["to"]):
        faults.append(f"{action['to']} of {name} is below its accuracy_min")


def _will_do(application: Mapping[str, Any], name: str) -> bool:
    return bool(_variant(application, name)["accuracy"] >= application.get("accuracy_min", 0))


def _instant(
    problem: Mapping[str, Any], residents: Mapping[str, str | None], action: Mapping[str, Any], faults: list[str]
) -> None:
    """Enacted in the order given, each action unloads before it loads, except a pinned one's, whose old variant is
    in use.
    """
    applications = {application["name"]: application for application in problem["applications"]}
    if action["to"] is None:
        return
    own = applications[action["application"]]
    others = {**residents} if own.get("pinned") else {**residents, action["application"]: None}
    new = _variant(own, action["to"])
    need = _held(applications, others) + (new.get("peak_mb") or new["size_mb"])
    if need > problem["memory_mb"] + EPSILON:
        faults.append(f"loading {action['to']} of {own['name']} takes memory to {need} MB")


def _outcome(
    problem: Mapping[str, Any],
    applications: Mapping[str, Mapping[str, Any]],
    answer: Mapping[str, Any],
    after: Mapping[str, str | None],
    faults: list[str],
) -> None:
    outcome, serve = answer["outcome"], answer["serve"]
    asker = applications[problem["request"]]
    if outcome == "failed":
        if answer["actions"] or serve is not None:
            faults.append("a failed answer changes or serves something")
        return
    if serve is None or after[asker["name"]] != serve:
        faults.append(f"serves {serve}, and {after[asker['name']]} is resident")
        return
    was = asker.get("resident")
    can_answer = was is not None and _will_do(asker, was)
    if outcome != ("warm" if can_answer else "cold"):
        faults.append(f"outcome is {outcome}, the requester had {was}")
    if not _will_do(asker, serve):
        faults.append(f"serves {serve}, below accuracy_min")


def _tenants(
    problem: Mapping[str, Any],
    applications: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, str | None],
    faults: list[str],
) -> None:
    before = {name: application.get("resident") for name, application in applications.items()}
    asker = applications[problem["request"]].get("tenant", "default")
    for tenant in problem.get("tenants") or ():
        own = {n: a for n, a in applications.items() if a.get("tenant", "default") == tenant["name"]}
        had, has = _held(own, before), _held(own, after)
        guarantee, ceiling = tenant.get("guarantee_mb") or 0, tenant.get("ceiling_mb")
        if tenant["name"] != asker and has < had and has < guarantee - EPSILON:
            faults.append(f"{tenant['name']} falls to {has} MB, below its guarantee")
        if ceiling is not None and has > had and has > ceiling + EPSILON:
            faults.append(f"{tenant['name']} rises to {has} MB, above its ceiling")
