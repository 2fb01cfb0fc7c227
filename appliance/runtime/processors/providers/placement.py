"""Which provider computes what of a network: as the runtime has placed it, and as a run has shown."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

CPU = "CPUExecutionProvider"
RECORD = "session.record_ep_graph_assignment_info"
"""Key of the session option by which the runtime keeps where it places each node."""
HEAVY = frozenset(
    """
    Attention BiasSplitGelu Conv ConvInteger ConvTranspose DeformConv Einsum FusedConv FusedMatMul GRU Gemm GroupNorm
    GroupQueryAttention InstanceNormalization LSTM MatMul MatMulInteger MultiHeadAttention QAttention QGemm
    QLinearConv QLinearMatMul RNN Resize
    """.split()
)
"""Operators that take the time of a network. The others may stay on the CPU: shapes are computed there on purpose."""

Placed = Mapping[str, frozenset[str]]
"""Provider → the types of operators that it has."""


def placed(session: Any) -> Placed | None:
    """Of a session that was made with `RECORD`; None where the runtime does not tell (before 1.24)."""
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return None
    found: dict[str, set[str]] = {}
    for part in ask():
        found.setdefault(str(part.ep_name), set()).update(str(node.op_type) for node in part.get_nodes())
    return {provider: frozenset(types) for provider, types in found.items()}


def ran_on(profile: Path) -> Collection[str]:
    """Providers of the kernels that ran, by the profile that a session has written."""
    events: list[dict[str, Any]] = json.loads(profile.read_text())
    kernels = (event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"))
    return {str(event["args"]["provider"]) for event in kernels if event.get("args", {}).get("provider")}


def misplaced(found: Placed | None, own: Collection[str]) -> str:
    """Why a network is not computed by the providers that it should be; empty where it is, or nobody knows."""
    if found is None:
        return ""
    if not any(found.get(provider) for provider in own):
        return f"none of it runs on {' or '.join(own)}"
    left = sorted(found.get(CPU, frozenset()) & HEAVY)
    return f"it would leave {', '.join(left)} to the CPU" if left else ""
