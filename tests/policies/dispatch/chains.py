"""Networks in parts, one after the other."""

from appliance.policies.dispatch.partition import Operator, Partition, partition


def chain(name: str, *steps: dict[str, float]) -> Partition:
    """A network of one operator a step: its run time by processor."""
    names = [f"{name}{index}" for index in range(len(steps))]
    operators = [
        Operator(op, frozenset(step), tuple(names[index - 1 : index]) if index else ())
        for index, (op, step) in enumerate(zip(names, steps, strict=True))
    ]
    latency_ms = {p: {op: s[p] for op, s in zip(names, steps, strict=True) if p in s} for s in steps for p in s}
    return partition(name, operators, latency_ms)
