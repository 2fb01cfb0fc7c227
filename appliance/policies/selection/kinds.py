"""On which kind of processor a content serves: the quickest, where the memory and the loads that it costs are worth it.

Kinds on the same cores differ by network, precision and machine, and neither is always the quicker one; so each content
was measured on each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOTICEABLE = 0.1
"""A gain below this is measuring noise: kinds are measured one after the other, on a box that may serve meanwhile."""
CALL_MS = 0.2
"""What a run on another kind takes however little it computes: times of small parts are estimated from those of large
ones, which do not tell.
"""
COLD_SHARE = 0.01
"""Of requests, that are assumed to wait for a load: what each request pays for a kind that loads slowly."""


@dataclass(frozen=True, slots=True)
class KindOption:
    """One content on one kind. `run_ms`: medians of its variants (rungs of one file) together, alone in a run;
    `load_ms`: to have it back in memory after it had to give way; `busy_ms`: as `run_ms`, while the box is busy: an
    item's part of the run in which it costs least, of those that requests may share, with the kind's other workers at
    it, too, where that was measured; None: as alone.
    """

    kind: str
    run_ms: float
    load_ms: float
    resident_bytes: int
    busy_ms: float | None = None
    base_bytes: int = 0
    """What a process of its own takes beside it; 0: it needs none."""

    def cost_ms(self, memory_bytes: int) -> float:
        """What a request costs: its run, its share of loads, and more of both for the memory that others lack.

        Requests share runs, and their run the machine, while the box is busy, and have both for themselves while it is
        not: half and half.
        """
        run_ms = self.run_ms if self.busy_ms is None else (self.run_ms + self.busy_ms) / 2
        taken_bytes = self.resident_bytes + self.base_bytes
        return (run_ms + COLD_SHARE * self.load_ms) * (1 + taken_bytes / memory_bytes)


def serving_kind(options: Sequence[KindOption], memory_bytes: int) -> str:
    """The kind of least cost; the first one unless another is noticeably better. At least one option."""
    first, *others = options
    best = min(others, key=lambda option: (option.cost_ms(memory_bytes), option.kind), default=first)
    if best.cost_ms(memory_bytes) < (1 - NOTICEABLE) * first.cost_ms(memory_bytes):
        return best.kind
    return first.kind


def kind_reason(options: Sequence[KindOption], memory_bytes: int) -> str:
    """Why `serving_kind` decides so, for a person; empty where there is nothing to decide."""
    first, *others = options
    if not others:
        return ""
    kind = serving_kind(options, memory_bytes)
    costs_ms = {option.kind: option.cost_ms(memory_bytes) for option in options}
    rest = " and ".join(f"{costs_ms[one.kind]:.3g} on {one.kind}" for one in options if one.kind != kind)
    told = f"a request costs {costs_ms[kind]:.3g} ms on {kind} and {rest}, loads and memory counted in"
    is_near = kind == first.kind and min(costs_ms.values()) < costs_ms[kind]
    return f"{told}; less by under a tenth does not count" if is_near else told


def quickest_kinds(parts_ms: Sequence[Mapping[str, float]], kinds: Sequence[str]) -> tuple[str | None, ...]:
    """Of each part of a network the kind, among those on the same cores, that it serves on: the quickest; the first of
    `kinds` that runs it unless another is noticeably quicker. `parts_ms`: by the kinds that run a part, a run of it;
    None: none of `kinds` does.
    """
    return tuple(_quickest([(kind, run_ms[kind]) for kind in kinds if kind in run_ms]) for run_ms in parts_ms)


def _quickest(runs_ms: Sequence[tuple[str, float]]) -> str | None:
    if not runs_ms:
        return None
    first, first_ms = runs_ms[0]
    best_ms, best = min((run_ms, kind) for kind, run_ms in runs_ms)
    return best if best_ms + CALL_MS < (1 - NOTICEABLE) * first_ms else first
