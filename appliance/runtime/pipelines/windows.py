"""What comes of a pipeline's frames of late: rates, items per frame at each stage and what an item takes there, over
windows of less than a second (Scrooge §3.5).

Totals are looked at twice a second. A window that has too few frames to say anything reaches further back, so that no
single frame is reacted to. All instants are the caller's.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.pipeline_graph import Graph
from appliance.runtime.pipelines.figures import RanAs
from appliance.runtime.profiles.estimate import TRUSTED_NS

WINDOW_NS = 450 * NS_PER_MS
"""Of the figures (SC-18), unless told otherwise, as long as it holds `FRAMES_MIN` ..."""
REACH_NS = 5 * NS_PER_S
"""... and no longer than this, unless nothing has come since and something is under way."""
FRAMES_MIN = 8
DECODE = "frame"
"""What reading a frame is called beside the stages."""
CHANGE = 0.1
"""A change of a figure below this is none (SC-17)."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of a pipeline since the start."""

    frames: int = 0
    """That came."""
    begun: int = 0
    """Of them, those that stages could begin with. The others were turned away or are still being read, and say nothing
    of items."""
    joined: int = 0
    """Of them, of clients that joined."""
    items: Mapping[str, int] = field(default_factory=dict)
    """Stage → items that it could begin with."""
    ran: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Stage → items that took processor time there, answered or not, and its nanoseconds; of reading frames under
    `DECODE`."""
    answered: Mapping[str, int] = field(default_factory=dict)
    """Stage → items that it has answered."""
    takes_ms: Mapping[str, float] = field(default_factory=dict)
    """Stage → what an item takes now, of those where nobody meters it."""
    ran_as: Mapping[tuple[str, RanAs], tuple[int, int]] = field(default_factory=dict)
    """As `ran`, of items that a network has answered, by stage and how they ran."""
    is_busy: bool = False
    """A frame is under way."""
    items_squared: Mapping[str, int] = field(default_factory=dict)
    """Stage → the items of each frame, squared, added up."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of a pipeline. `frames`: how many it was seen of; figures of few frames vary by chance."""

    fps: float = 0.0
    joined_fps: float = 0.0
    """Of them, frames of clients that joined."""
    frames: int = 0
    items: Mapping[str, float] = field(default_factory=dict)
    """Stage → items of a frame that it takes. Absent: nothing was seen of it yet."""
    takes_ms: Mapping[str, float] = field(default_factory=dict)
    """Stage → processor time of an item. Absent: nothing ran there of late."""
    takes_as_ms: Mapping[tuple[str, RanAs], float] = field(default_factory=dict)
    """The same by stage and how items ran of late."""
    at_ns: int = 0
    """When it was looked at."""
    items_error: Mapping[str, float] = field(default_factory=dict)
    """Stage → standard error of `items`, by how much the frames differed: by just so much a single frame that differs
    from all the others moves them."""

    @property
    def least_change(self) -> float:
        """What counts as a change, as a share: `CHANGE`, or what so few frames may differ by, by chance."""
        return max(CHANGE, 1.0 / math.sqrt(self.frames)) if self.frames else CHANGE


class FrameWindows:
    """Of one pipeline."""

    def __init__(self, now_ns: int, totals: Totals, graph: Graph, window_ns: int = WINDOW_NS) -> None:
        """`totals` at the beginning, which count for nothing."""
        self._graph = graph
        self._window_ns = window_ns
        self._edges: dict[str, float] = {}
        """Items of a stage by answer of its parent (SC-19)."""
        self._looks: deque[tuple[int, Totals]] = deque([(now_ns, totals)])
        self._takes_ms: dict[str, float] = {}
        self._takes_as_ms: dict[tuple[str, RanAs], tuple[int, float]] = {}
        """With when it was seen."""
        self._ran_ns: dict[str, int] = {}
        """Stage → when it was last seen to have run ..."""
        self._counts = {stage: count for stage, (count, _took_ns) in totals.ran.items()}
        """... by the items that had run there until then."""

    def is_of(self, graph: Graph, totals: Totals) -> bool:
        """Whether it still is the pipeline that was looked at: with the same stages, and not one that was defined anew
        under its name, whose totals begin with nothing.
        """
        return self._graph == graph and totals.frames >= self._looks[-1][1].frames

    def _parents(self) -> Iterator[tuple[str, str | None]]:
        """Every stage, after the one whose answers its items come from; None: the frame."""
        return ((stage, self._graph.parents[stage]) for stage in self._graph.order)

    def look(self, now_ns: int, totals: Totals) -> Observed:
        """The figures now, by the totals as they are. Items of a stage that nothing came to of late are what they were
        when something did. Times are so for `TRUSTED_NS` only: a stage may have nothing to do because it was slow.
        """
        if now_ns > self._looks[-1][0]:
            self._looks.append((now_ns, totals))
        self._forget(now_ns, totals)
        since_ns, before = self._since(now_ns, totals)
        seconds = max(now_ns - since_ns, self._window_ns) / NS_PER_S
        frames = totals.frames - before.frames
        begun = totals.begun - before.begun
        for stage, parent in self._parents():
            of = begun if parent is None else totals.answered.get(parent, 0) - before.answered.get(parent, 0)
            if of > 0:
                self._edges[stage] = max(0, totals.items.get(stage, 0) - before.items.get(stage, 0)) / of
        for stage, (count, took_ns) in totals.ran.items():
            known_count, known_ns = before.ran.get(stage, (0, 0))
            if count > known_count:
                self._takes_ms[stage] = (took_ns - known_ns) / (count - known_count) / NS_PER_MS
            if count > self._counts.get(stage, 0):
                self._counts[stage], self._ran_ns[stage] = count, now_ns
        for stage in [one for one, ran_ns in self._ran_ns.items() if now_ns - ran_ns > TRUSTED_NS]:
            self._takes_ms.pop(stage, None)
        self._takes_ms.update(totals.takes_ms)
        for ran_as, (count, took_ns) in totals.ran_as.items():
            known_count, known_ns = before.ran_as.get(ran_as, (0, 0))
            if count > known_count:
                took_ms = (took_ns - known_ns) / (count - known_count) / NS_PER_MS
                self._takes_as_ms[ran_as] = now_ns, took_ms
        for ran_as in [one for one, (ran_ns, _) in self._takes_as_ms.items() if now_ns - ran_ns > TRUSTED_NS]:
            del self._takes_as_ms[ran_as]
        joined = totals.joined - before.joined
        takes_as_ms = {ran_as: took_ms for ran_as, (_, took_ms) in self._takes_as_ms.items()}
        items = self._items()
        return Observed(
            frames / seconds,
            joined / seconds,
            frames,
            items,
            dict(self._takes_ms),
            takes_as_ms,
            now_ns,
            _items_error(items, totals, before),
        )

    def _forget(self, now_ns: int, totals: Totals) -> None:
        """Looks that lie too far back. While a frame is under way the one before the last frames came is kept: who
        sends the next frame after an answer that takes longer sends one all the same.
        """
        while len(self._looks) > 2 and now_ns - self._looks[1][0] >= REACH_NS:
            if totals.is_busy and totals.frames == self._looks[1][1].frames:
                if now_ns - self._looks[2][0] < REACH_NS:
                    return
                del self._looks[1]
            else:
                self._looks.popleft()

    def _items(self) -> dict[str, float]:
        """Of a frame, were none dropped on the way."""
        found: dict[str, float] = {}
        for stage, parent in self._parents():
            before = 1.0 if parent is None else found.get(parent)
            if before is not None and stage in self._edges:
                found[stage] = before * self._edges[stage]
        return found

    def _since(self, now_ns: int, totals: Totals) -> tuple[int, Totals]:
        """The latest look that lies a window back, and has enough frames after it; else the first."""
        for at_ns, before in reversed(self._looks):
            if now_ns - at_ns >= self._window_ns and totals.frames - before.frames >= FRAMES_MIN:
                return at_ns, before
        return self._looks[0]


def _items_error(items: Mapping[str, float], totals: Totals, before: Totals) -> dict[str, float]:
    """Of these means, of as many frames as they are the means of; none of a stage where that is nothing, or cannot be
    told.
    """
    found: dict[str, float] = {}
    for stage, mean in items.items():
        count = totals.items.get(stage, 0) - before.items.get(stage, 0)
        squares = totals.items_squared.get(stage, 0) - before.items_squared.get(stage, 0)
        deviation = squares - mean * count
        if count > mean > 0.0 and deviation > 0.0:
            frames = count / mean  # some that came may not have come so far
            found[stage] = math.sqrt(deviation / (frames - 1) / frames)
    return found
