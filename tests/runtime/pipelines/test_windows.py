"""What is seen of frames: over half a second, and no reaction to a single frame."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.pipeline import Ask
from appliance.domain.pipeline_graph import Graph
from appliance.runtime.pipelines.figures import RanAs
from appliance.runtime.pipelines.windows import REACH_NS, WINDOW_NS, FrameWindows, Observed, Totals
from appliance.runtime.profiles.estimate import TRUSTED_NS
from tests.harness.reach import reachable

START_NS = 1_000 * NS_PER_S
STAGES = (Ask(name="find", application_id="t/find"), Ask(name="read", application_id="t/read", after=("find",)))
GRAPH = Graph.of(STAGES, {})


class Fed:
    """Windows that are looked at twice a second, and frames that come at an even rate."""

    def __init__(self, window_ns: int = WINDOW_NS) -> None:
        self.now_ns = START_NS
        self.windows = FrameWindows(START_NS, Totals(), GRAPH, window_ns)
        self.frames = self.joined = self.items = self.squared = self.away = self.dropped = 0
        self._owed = 0.0

    def look(self, seconds: float, fps: float, items: Sequence[int]) -> Observed:
        """So many frames a second, with items in turn, each second one of a client."""
        seen = self.windows.look(self.now_ns, self.totals)
        for _ in range(round(2 * seconds)):
            self.now_ns += NS_PER_S // 2
            self._owed += fps / 2
            while self._owed >= 1.0:
                self._owed -= 1.0
                self.items += items[self.frames % len(items)]
                self.squared += items[self.frames % len(items)] ** 2
                self.frames += 1
                self.joined += self.frames % 2
            seen = self.windows.look(self.now_ns, self.totals)
        return seen

    @property
    def totals(self) -> Totals:
        took_ns = self.items * 12 * NS_PER_MS
        begun = self.frames - self.away
        items = {"find": begun, "read": self.items}
        ran = {"read": (self.items, took_ns)}
        answered, squared = {"find": begun - self.dropped}, {"find": begun, "read": self.squared}
        return Totals(self.frames, begun, self.joined, items, ran, answered, items_squared=squared)


def test_window_rates_and_items_are_those_of_the_last_half_second() -> None:
    """Rates, items of a frame and time of an item (SC-18, SC-19)."""
    fed = Fed()
    seen = fed.look(2.0, 40, [3])
    assert (seen.fps, seen.joined_fps, seen.items, seen.takes_ms) == (
        40.0,
        20.0,
        {"find": 1.0, "read": 3.0},
        {"read": 12.0},
    )
    assert fed.look(0.5, 40, [8]).items["read"] == 8.0
    assert fed.look(0.5, 80, [8]).fps == 80.0


def test_longer_window_reacts_later() -> None:
    """A window is as long as it is set (SC-18): what has changed for half of it is half of what is seen."""
    fed = Fed(window_ns=950 * NS_PER_MS)
    fed.look(2.0, 40, [3])
    assert fed.look(0.5, 40, [8]).items["read"] == 5.5
    assert fed.look(0.5, 40, [8]).items["read"] == 8.0


def test_window_at_a_low_rate_reaches_back_over_eight_frames() -> None:
    """At two frames a second one crowded frame moves the mean by its part, and by less than what counts as a change."""
    fed = Fed()
    fed.look(4.0, 2, [1])
    seen = fed.look(0.5, 2, [3])
    assert seen.frames >= 8
    assert 1.0 < seen.items["read"] < 1.3
    assert seen.items["read"] - 1.0 <= seen.least_change
    assert seen.fps == pytest.approx(2)


def test_single_frame_moves_items_by_no_more_than_their_error() -> None:
    """However crowded a frame is, it is no change; two crowded frames are (SC-18)."""
    fed = Fed()
    assert fed.look(4.0, 2, [1]).items_error == {}
    one = fed.look(0.5, 2, [8])
    assert one.items["read"] == 1.875
    assert one.items_error["read"] == pytest.approx(one.items["read"] - 1.0)
    assert "find" not in one.items_error
    two = fed.look(0.5, 2, [8])
    assert two.items["read"] == 2.75
    assert two.items_error["read"] < 0.8 * (two.items["read"] - 1.0)
    fed.away += 3  # frames that came were turned away, or are being read
    fewer = fed.look(0.0, 2, [])
    assert fewer.items["read"] > two.items["read"]
    assert fewer.items_error["read"] > two.items_error["read"]


def test_window_without_frames_has_no_rate_and_remembers_items() -> None:
    fed = Fed()
    fed.look(2.0, 10, [2])
    seen = fed.look(REACH_NS / NS_PER_S + 0.5, 0, [2])
    assert (seen.fps, seen.frames, seen.items["read"]) == (0.0, 0, 2.0)
    assert fed.look(1.0, 10, [4]).items["read"] == 4.0


def test_frames_longer_than_the_windows_reach_keep_a_rate() -> None:
    """A client that sends the next frame when the last one is answered, every 20 s, has a rate all the while, and no
    more looks are kept than of others; when that is over the rate falls to none as ever.
    """
    windows = FrameWindows(START_NS, Totals(), GRAPH)
    now_ns, rates, kept = START_NS, [], 0
    for frames in range(1, 4):
        for _ in range(40):
            now_ns += NS_PER_S // 2
            rates.append(windows.look(now_ns, Totals(frames, is_busy=True)).fps)
            kept = max(kept, sum(isinstance(one, Totals) for one in reachable(windows)))
    assert min(rates) >= 1 / 21
    assert rates[-1] == pytest.approx(1 / 20, rel=0.05)
    assert kept <= 2 * REACH_NS / NS_PER_S + 3
    for _ in range(round(2 * REACH_NS / NS_PER_S) + 1):
        now_ns += NS_PER_S // 2
        seen = windows.look(now_ns, Totals(3))
    assert seen.fps == 0.0


def test_dropped_frames_and_items_do_not_change_items_per_frame() -> None:
    """Frames of which nothing ran, and items that were dropped: a plan must not take what it has turned away for less
    to do.
    """
    fed = Fed()
    fed.look(1.0, 40, [2])
    fed.frames += 40
    fed.away += 40
    fed.items += 20
    fed.frames += 20
    fed.dropped += 10
    seen = fed.look(0.5, 0, [2])
    assert seen.items == {"find": 1.0, "read": 2.0}
    assert seen.fps == 120.0


def test_run_times_of_a_stage_without_runs_are_forgotten() -> None:
    """The times may be why no run follows."""
    fed = Fed()
    fed.look(2.0, 10, [2])
    assert fed.look(TRUSTED_NS / NS_PER_S - 1, 10, [0]).takes_ms == {"read": 12.0}
    assert fed.look(2.0, 10, [0]).takes_ms == {}
    assert fed.look(1.0, 10, [2]).takes_ms == {"read": 12.0}


def test_run_times_are_kept_by_variant_kind_and_batch() -> None:
    """And forgotten like other times."""
    fine, coarse = ("read", RanAs("fine", "cpu", 1)), ("read", RanAs("coarse", "cpu", 1))
    windows = FrameWindows(START_NS, Totals(), GRAPH)
    first = Totals(ran_as={fine: (2, 60 * NS_PER_MS)})
    assert windows.look(START_NS + NS_PER_S, first).takes_as_ms == {fine: 30.0}
    both = Totals(ran_as={**first.ran_as, coarse: (1, 5 * NS_PER_MS)})
    assert windows.look(START_NS + 2 * NS_PER_S, both).takes_as_ms == {fine: 30.0, coarse: 5.0}
    later_ns = START_NS + 2 * NS_PER_S + 2 * TRUSTED_NS
    windows.look(later_ns - TRUSTED_NS, both)
    assert windows.look(later_ns + NS_PER_S, both).takes_as_ms == {}


def test_windows_of_stages_defined_otherwise_are_not_reused() -> None:
    """What was seen of other stages says nothing about these."""
    windows = FrameWindows(START_NS, Totals(), GRAPH)
    assert windows.is_of(Graph.of(STAGES, {}), Totals())
    fewer = (STAGES[0], replace(STAGES[1], at_most=4))
    assert not windows.is_of(Graph.of(fewer, {}), Totals())
