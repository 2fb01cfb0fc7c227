"""What came of a frame of a pipeline, for a person."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from appliance.cli.predict import found_in

_WHY = {"condition": "not asked", "dropped": "dropped: it could no longer be in time", "error": "failed"}


def tree_of(frame: Mapping[str, Any]) -> list[str]:
    """Its items as an indented tree, then where the time went and what it cost."""
    lines = list(_lines(frame["items"], 0))
    parts = ", ".join(f"{stage} {ms:.1f}" for stage, ms in frame["timings_ms"].items())
    cost = frame["cost"]
    told = [f"{1000 * cost['seconds']:.1f} ms of processors"]
    told += [] if cost.get("joules") is None else [f"{cost['joules']:.3g} J"]
    told += [] if cost.get("price") is None else [f"price {cost['price']:.3g}"]
    lines.append(f"— {_kept(frame)}; {parts} ms; {', '.join(told)}")
    return lines


def _kept(frame: Mapping[str, Any]) -> str:
    """Whether its SLO was, and why not: a frame that lacks something may have come early."""
    if frame["in_time"]:
        return "in time"
    return "incomplete" if _lacks(frame["items"]) else "late"


def _lacks(items: Iterable[Mapping[str, Any]]) -> bool:
    return any(item.get("none") in ("dropped", "error") or _lacks(item.get("items") or ()) for item in items)


def _lines(items: Iterable[Mapping[str, Any]], depth: int) -> Iterator[str]:
    for item in items:
        indent = "  " * depth
        variant = f" ({item['variant']})" if item.get("variant") else ""
        where = _where(item)
        if item.get("none"):
            yield f"{indent}{item['stage']}{where}: {_WHY[item['none']]}"
        else:
            found = found_in(item.get("answer") or {})
            yield (
                f"{indent}{item['stage']}{variant}{where}: {found[0]}"
                if len(found) == 1
                else (f"{indent}{item['stage']}{variant}{where}")
            )
            if len(found) > 1:
                yield from (f"{indent}    {line}" for line in found)
        yield from _lines(item.get("items") or (), depth + 1)


def _where(item: Mapping[str, Any]) -> str:
    if item.get("box"):
        return " at " + ", ".join(f"{side:.0f}" for side in item["box"])
    if item.get("quad"):
        return " at " + " ".join(f"({x:.0f}, {y:.0f})" for x, y in item["quad"])
    return ""
