"""The answer of a frame as JSON: its items as a tree, where the time went, what it cost.

A stage's node hangs under that of the stage before it, about the same item or the one that it was cut from; behind a
stage without an answer there are none.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from appliance.clock import NS_PER_MS
from appliance.domain.pipeline import Ask, Crop, Region
from appliance.runtime.pipelines.frame import FrameRun
from appliance.runtime.pipelines.items import Item, Outcome
from appliance.runtime.pipelines.live import LivePipeline
from appliance.tasks.large_json import write_json


def document(frame: FrameRun, *, cost: dict[str, float | None], is_in_time: bool) -> bytes:
    """The JSON of a `FrameShape`. The networks' answers were written in the media threads; the rest is short."""
    live = frame.live
    items = _nodes(live, None, frame.root)
    timings = {
        name: round((frame.ended_ns[name] - began_ns) / NS_PER_MS, 3)
        for name, began_ns in frame.began_ns.items()
        if name in frame.ended_ns
    }
    head = orjson.dumps({"pipeline": live.pipeline.name})[:-1]
    tail = orjson.dumps(
        {"timings_ms": timings, "cost": cost, "in_time": is_in_time, "request_id": frame.call.request_id}
    )[1:]
    return b"%b,%b,%b" % (head, _member(items), tail)


def _member(nodes: Iterator[bytes]) -> bytes:
    return b'"items":[' + b",".join(nodes) + b"]"


def _nodes(live: LivePipeline, parent: str | None, item: Item) -> Iterator[bytes]:
    """The nodes under that of a stage about an item."""
    for name, above in live.graph.parents.items():
        if above != parent:
            continue
        if isinstance(live.stages[name], Crop):
            outcome = item.ends.get(name)
            if outcome is not None and outcome.none is not None:
                yield _node(live, name, item, outcome)
            for child in item.children.get(name, ()):
                yield _node(live, name, child, child.ends[name])
            continue
        path = live.paths[live.graph.levels[name]]
        for one in item.below(path[path.index(item.level) + 1 :]):
            if name in one.ends:
                yield _node(live, name, one, one.ends[name])


def _node(live: LivePipeline, name: str, item: Item, outcome: Outcome) -> bytes:
    """A stage about an item, and below it those behind."""
    stage = live.stages[name]
    head: dict[str, Any] = {"stage": name}
    answer = outcome.answer
    if isinstance(stage, Ask) and answer is not None:
        head["variant"] = answer.variant
    if isinstance(stage, Crop) and item.region is not None and item.level == name:
        head |= _place(item.region)
    if outcome.none is not None:
        head["none"] = outcome.none.value
    parts = [orjson.dumps(head)[:-1]]
    if answer is not None:
        parts.append(b'"answer":' + (answer.text or write_json(dict(answer.body))))
    below = b"" if outcome.none is not None else b",".join(_nodes(live, name, item))
    parts.append(b'"items":[' + below + b"]}")
    return b",".join(parts)


def _place(region: Region) -> dict[str, Any]:
    corners = [(round(x, 2), round(y, 2)) for x, y in region.corners]
    if not region.is_box:
        return {"quad": corners}
    (left, top), _, (right, bottom), _ = corners
    return {"box": (left, top, right, bottom)}
