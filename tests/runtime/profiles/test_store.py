"""What is kept of what runs take, and for whom."""

from dataclasses import replace

import numpy as np
import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Latency, Profile
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.runtime.profiles.store import ProfileStore, Where
from tests.fakes.hand_clock import HandClock
from tests.fakes.sinks import Events

DIGEST, OTHER = "a" * 64, "b" * 64
BUILD, GUARDED, ELSEWHERE = f"{DIGEST[:24]}@cpu", f"{DIGEST[:24]}@cpu@t", f"{OTHER[:24]}@cpu"
PROFILE = Profile("cpu", 1, 1, 1, 1, (Latency(1, 10, 12),))


class Box:
    """A store with its clock."""

    def __init__(self, fingerprint: str = "f") -> None:
        self.clock, self.events = HandClock(), Events()
        self.store = ProfileStore(self.clock, self.events, {"cpu": fingerprint}, 0.1)

    def run(self, build: str, took_ms: float, times: int = 50, rung: str = "") -> None:
        table = self.store.of(build, rung, PROFILE, None, None).usual
        for _ in range(times):
            table.ran(1, 1, int(took_ms * NS_PER_MS), self.clock.now_ns())

    def expected_ms(self, build: str, rung: str = "") -> float:
        table = self.store.of(build, rung, PROFILE, None, None).usual
        return table.expected_ns(1, 1, self.clock.now_ns()) / NS_PER_MS


def test_run_times_in_a_guard_are_the_tenants_own() -> None:
    """They may depend on values: other tenants with the same file do not go by them, nor other rungs of the file."""
    box = Box()
    box.run(GUARDED, 100)
    box.run(BUILD, 20, rung="64x64")
    assert box.expected_ms(GUARDED) > 90
    assert (box.expected_ms(BUILD), box.expected_ms(f"{BUILD}@other")) == (10, 10)
    assert box.expected_ms(BUILD, "64x64") > 19


def test_runs_at_once_that_were_not_timed_are_expected_to_share_what_was() -> None:
    """A profile of one run at a time, on a box with four workers: sessions and waits go by no more throughput. On a
    processor that no import measures, and for which nothing is to be timed, the profile is all there is.
    """
    at_once = {"cpu": RunsAtOnce(4, 2), "other": None}
    store = ProfileStore(HandClock(), Events(), {}, 0.1, at_once=at_once)
    table = store.of(BUILD, "", PROFILE, None, None).usual
    assert [table.expected_ns(1, running, 0) / NS_PER_MS for running in (1, 2, 4)] == [10, 20, 40]
    twin = store.of(BUILD, "", PROFILE, None, None, Where("little", 0.5)).usual
    assert twin.expected_ns(1, 4, 0) / NS_PER_MS == 20
    other = store.of(ELSEWHERE, "", replace(PROFILE, kind="other"), None, None).usual
    assert other.expected_ns(1, 4, 0) / NS_PER_MS == 10


def test_drift_of_run_times_is_an_event_of_the_owner_of_the_build() -> None:
    """Of the operator where the build is no tenant's own."""
    box = Box()
    box.run(BUILD, 20)
    box.run(GUARDED, 30)
    shared, own = box.events.of("run times drifted")
    assert (shared["build"], "tenant" in shared) == (BUILD, False)
    assert (own["build"], own["tenant"], own["factor"] > 1.5) == (GUARDED, "t", True)
    assert box.store.drifts == 2
    box.run(BUILD, 10)
    assert [facts["build"] for facts in box.events.of("run times as profiled")] == [BUILD]


def test_run_times_are_restored_after_a_restart() -> None:
    """Medians, P99s, counts and ages come back, and with them how much slower all has become."""
    before = Box()
    before.run(BUILD, 20)
    before.clock.pass_s(1)
    saved = before.store.changed()
    after = Box()
    after.clock.pass_s(3)
    after.store.restore(saved)
    assert after.expected_ms(BUILD) == pytest.approx(before.expected_ms(BUILD), abs=1e-5)
    (seen,) = after.store.seen(BUILD, "")
    (row,) = seen.latencies
    assert (row.batch, row.concurrency, row.count) == (1, 1, 50)
    assert row.at == saved[0].latencies[0].at
    assert next(after.store.ballooned())[2] == pytest.approx(2, rel=0.01)


def test_run_times_of_another_machine_are_not_restored() -> None:
    """What was seen on another processor, or with another version of the runtime, says nothing."""
    before, after = Box(), Box("another")
    before.run(BUILD, 20)
    after.store.restore(before.store.changed())
    assert after.expected_ms(BUILD) == 10


def test_run_times_are_saved_only_when_changed() -> None:
    """The first time, and when a median has moved noticeably; at the end of the service whatever has moved."""
    box = Box()
    box.run(BUILD, 20)
    box.store.of(ELSEWHERE, "", PROFILE, None, None)
    changed = box.store.changed()
    assert [one.build_id for one in changed] == [BUILD]
    assert box.store.changed() == changed  # the disk was full
    box.store.saved(changed)
    assert box.store.changed() == []
    box.run(BUILD, 20.5)
    assert box.store.changed() == []
    assert [one.build_id for one in box.store.changed(at_all=True)] == [BUILD]
    box.run(BUILD, 30)
    assert len(box.store.changed()) == 1


def test_run_times_of_a_deleted_content_are_forgotten() -> None:
    """Also of builds that no request has asked for since the start."""
    box = Box()
    for build in (BUILD, GUARDED, ELSEWHERE):
        box.run(build, 20)
    saved = box.store.changed()
    box.store.forget([DIGEST])
    assert {build for build, _, _ in box.store.ballooned()} == {ELSEWHERE}
    assert box.expected_ms(BUILD) == 10
    after = Box()
    after.store.restore(saved)
    after.store.forget([DIGEST])
    assert (after.expected_ms(BUILD), after.expected_ms(ELSEWHERE) > 19) == (10, True)


def test_run_times_of_inputs_of_other_sizes_are_told_apart() -> None:
    """Texts of 16 tokens, as the import measured, and of 256; items count by number, not by size. After a restart,
    too.
    """
    box = Box()
    base = {"ids": (2, 16), "mask": (2, 16)}

    def tables(box: Box) -> list[float]:
        times = box.store.of(BUILD, "", PROFILE, base, "ids")
        found = []
        for items, length in ((1, 16), (1, 256), (4, 16)):
            inputs = {name: np.zeros((items, length), np.int64) for name in base}
            table = times.of(inputs, items)
            found.append(table.expected_ns(1, 1, box.clock.now_ns()) / NS_PER_MS)
        return found

    assert tables(box) == [10, 10, 10]
    long = {name: np.zeros((1, 256), np.int64) for name in base}
    for _ in range(50):
        table = box.store.of(BUILD, "", PROFILE, base, "ids").of(long, 1)
        table.ran(1, 1, 90 * NS_PER_MS, box.clock.now_ns())
    assert tables(box) == [10, 90, 10]
    (seen,) = box.store.seen(BUILD, "")
    assert seen.elements_max is not None
    assert 512 <= seen.elements_max < 768
    after = Box()
    after.store.restore(box.store.changed())
    assert tables(after) == [10, 90, 10]


def test_new_measurement_of_a_build_counts_where_nothing_has_run() -> None:
    box = Box()
    box.store.of(BUILD, "", PROFILE, None, None)
    again = replace(PROFILE, latencies=(Latency(1, 30, 40),))
    assert box.store.of(BUILD, "", again, None, None).usual.expected_ns(1, 1, 0) == 30 * NS_PER_MS


def test_first_measurement_takes_place_of_an_estimate() -> None:
    """Also of runs seen before it; inputs of the size that it was measured with are usual from then on."""
    box, base = Box(), {"ids": (1, 16)}
    inputs = {"ids": np.zeros((1, 16), np.int64)}
    estimate = replace(PROFILE, latencies=(Latency(1, 50, 75),))
    times = box.store.of(BUILD, "", estimate, None, "ids", is_measured=False)
    times.usual.ran(1, 1, 40 * NS_PER_MS, 0)
    assert times.usual.expected_ns(1, 1, 0) == 40 * NS_PER_MS
    times = box.store.of(BUILD, "", PROFILE, base, "ids")
    assert times.of(inputs, 1) is times.usual
    assert [one.reference_ns for _, _, one in times.usual.estimates()] == [10 * NS_PER_MS]
    assert times.usual.hoped_ns(2, 1, 0) == times.usual.expected_ns(2, 1, 0)
