"""Events and figures: complete, bounded, and only for whom they are meant."""

import asyncio
from typing import Any

import pytest

from appliance.domain.promised import PromiseEnd
from appliance.runtime.telemetry import BUCKETS_S, PARTS, RECENT_RUNS, Event, Statistics, Telemetry, merge
from tests.fakes.clock import settle, story
from tests.fakes.hand_clock import HandClock

KEY = ("t/a", "v", "t")


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(HandClock(), ring_len=3, subscriber_len=2)


class Logger:
    """Remembers what it is told, in the shape of structlog's."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **facts: Any) -> None:
        self.told.append((event, facts))


def test_event_has_time_number_and_facts(telemetry: Telemetry) -> None:
    """Numbers rise by one; a tenant's event says whose it is; the logger hears it too."""
    logger = Logger()
    telemetry.log_to(logger)
    telemetry.emit("first", tenant="t", bytes=3)
    telemetry.emit("second", tenant=None)
    first, second = telemetry.recent()
    assert first == Event(1, "2026-01-01T00:00:00+00:00", "first", "t", {"tenant": "t", "bytes": 3})
    assert (second.id, second.tenant) == (2, None)
    assert logger.told == [("first", {"tenant": "t", "bytes": 3}), ("second", {"tenant": None})]


def test_event_ring_keeps_the_last_events(telemetry: Telemetry) -> None:
    """`after_id` leaves out what is known already."""
    for name in "abcde":
        telemetry.emit(name)
    assert [e.event for e in telemetry.recent()] == ["c", "d", "e"]
    assert [e.event for e in telemetry.recent(after_id=4)] == ["e"]


def test_events_of_a_loud_tenant_do_not_push_out_those_of_others() -> None:
    """Of the events that are kept, the oldest of the tenant that has more than its part goes first."""
    telemetry = Telemetry(HandClock(), ring_len=6)
    for tenant, count in ((None, 1), ("quiet", 2), ("loud", 100), (None, 2), ("loud", 50)):
        for number in range(count):
            telemetry.emit(f"{tenant} {number}", tenant=tenant)
    kept = [event.event for event in telemetry.recent()]
    assert kept == ["quiet 0", "quiet 1", "None 0", "None 1", "loud 48", "loud 49"]
    assert [event.id for event in telemetry.recent()] == sorted(event.id for event in telemetry.recent())
    for number in range(20):
        telemetry.emit("one each", tenant=f"t{number}")
    assert [event.tenant for event in telemetry.recent()][-3:] == ["t17", "t18", "t19"]
    assert len(telemetry.recent()) == 6


@story
async def test_event_subscriber_gets_missed_and_new_events(telemetry: Telemetry) -> None:
    """Without gap or double; a subscriber that names no event hears only new ones."""
    telemetry.emit("a")
    telemetry.emit("b")
    heard: dict[str, list[str]] = {"all": [], "new": []}

    async def listen(name: str, after_id: int | None) -> None:
        async for event in telemetry.subscribe(after_id):
            heard[name].append(event.event)

    tasks = [asyncio.create_task(listen("all", 1)), asyncio.create_task(listen("new", None))]
    await settle()
    telemetry.emit("c")
    await settle()
    telemetry.close()
    await asyncio.gather(*tasks)
    assert heard == {"all": ["b", "c"], "new": ["c"]}


@story
async def test_slow_event_subscriber_loses_the_oldest_events(telemetry: Telemetry) -> None:
    """The numbers show the gap, and no sender waits for it."""
    events = telemetry.subscribe()
    first = asyncio.ensure_future(anext(events))
    await settle()
    for name in "abcd":
        telemetry.emit(name)
    assert [(await first).id, (await anext(events)).id] == [3, 4]
    await events.aclose()
    telemetry.emit("e")


@story
async def test_close_ends_full_and_later_event_subscriptions(telemetry: Telemetry) -> None:
    """A full queue does not keep the end away, and a subscriber that comes after it does not wait for ever."""
    events = telemetry.subscribe()
    waiting = asyncio.ensure_future(anext(events))
    await settle()
    for name in "abc":
        telemetry.emit(name)
    telemetry.close()
    await waiting
    assert [e.event async for e in events] == []
    assert [e.event async for e in telemetry.subscribe(after_id=2)] == ["c"]


@pytest.mark.parametrize(
    ("value_ms", "bucket"), [(0, 0), (0.5, 0), (0.500001, 1), (10_000, len(BUCKETS_S) - 1), (10_001, len(BUCKETS_S))]
)
def test_histogram_buckets_are_upper_bounds(telemetry: Telemetry, value_ms: float, bucket: int) -> None:
    """A value on the bound belongs below it, as Prometheus counts; the last bucket takes the rest."""
    telemetry.done(KEY, warm=True, parts_ns=(0, 0, int(value_ms * 1e6)), items=1, run_items=1, at_ns=5)
    histogram = telemetry.statistics[KEY].histograms["compute"]
    assert histogram.counts[bucket] == 1
    assert (histogram.count, histogram.sum_ns) == (1, int(value_ms * 1e6))


def test_request_is_counted_in_all_parts(telemetry: Telemetry) -> None:
    """Queue, load and compute by themselves and in all; warm and cold; items of the batch."""
    telemetry.done(KEY, warm=False, parts_ns=(1, 2, 3), items=4, run_items=4, at_ns=5)
    telemetry.done(KEY, warm=True, parts_ns=(10, 0, 30), items=1, run_items=1, at_ns=6)
    statistics = telemetry.statistics[KEY]
    assert {part: statistics.histograms[part].sum_ns for part in PARTS} == {
        "queue": 11, "load": 2, "compute": 33, "total": 46,
    }  # fmt: skip
    assert (statistics.outcomes, statistics.warm, statistics.cold, statistics.inferences) == ({"done": 2}, 1, 1, 5)
    assert statistics.last_ns == 6


def test_figures_of_an_application_add_up(telemetry: Telemetry) -> None:
    """Over tenants, by variant, and no other application's; they are forgotten with a tenant, whatever it asked of
    others' applications, and with the application.
    """
    telemetry.done(KEY, warm=True, parts_ns=(1, 1, 1), items=1, run_items=1, at_ns=5)
    telemetry.done(("t/a", "v", "u"), warm=False, parts_ns=(1, 1, 1), items=2, run_items=2, at_ns=5)
    telemetry.failed(("t/a", "", "u"), "rejected", 3)
    telemetry.failed(("t/a", "", "v"), "failed", 4)
    telemetry.failed(("t/ab", "v", "t"), "failed", 1)
    figures = telemetry.of_application("t/a")
    assert set(figures) == {"v", ""}
    served, failed = figures["v"], figures[""]
    assert (served.outcomes, served.inferences, served.warm, served.cold) == ({"done": 2}, 3, 1, 1)
    assert served.histograms["total"].count == 2
    assert (failed.outcomes, failed.failed_ns) == ({"rejected": 1, "failed": 1}, 7)
    assert telemetry.statistics[KEY].inferences == 1  # adding up changes nothing
    telemetry.forget_tenant("u")
    assert set(telemetry.statistics) == {KEY, ("t/a", "", "v"), ("t/ab", "v", "t")}
    assert {name: one.inferences for name, one in telemetry.of_application("t/a").items()} == {"v": 1, "": 0}
    assert telemetry.applications() == ["t/a", "t/ab"]
    telemetry.forget_application("t/a")
    assert telemetry.of_application("t/a") == {}
    assert list(telemetry.statistics) == [("t/ab", "v", "t")]
    telemetry.forget_tenant("t")
    assert telemetry.applications() == []


def test_recent_run_times_are_of_warm_requests_of_one_item(telemetry: Telemetry) -> None:
    """And no more than so many."""
    telemetry.done(KEY, warm=False, parts_ns=(0, 0, 900), items=1, run_items=1, at_ns=5)
    telemetry.done(KEY, warm=True, parts_ns=(0, 0, 800), items=2, run_items=2, at_ns=5)
    for ns in range(RECENT_RUNS + 2):
        telemetry.done(KEY, warm=True, parts_ns=(7, 0, ns), items=1, run_items=1, at_ns=5)
    assert list(telemetry.of_application("t/a")["v"].runs_ns) == list(range(2, RECENT_RUNS + 2))


def test_merge_of_statistics_adds_outcomes_and_takes_the_later_time() -> None:
    one, other = Statistics(outcomes={"done": 1}, last_ns=5), Statistics(outcomes={"done": 1, "failed": 2}, last_ns=3)
    merge(one, other)
    assert (one.outcomes, one.last_ns) == ({"done": 2, "failed": 2}, 5)


def test_slo_share_counts_only_requests_under_an_slo(telemetry: Telemetry) -> None:
    """With another SLO they count anew."""
    parts = (1, 2, 3)
    telemetry.done(KEY, warm=True, parts_ns=parts, items=1, run_items=1, at_ns=9, slo_kept=True)
    telemetry.done(KEY, warm=True, parts_ns=parts, items=1, run_items=1, at_ns=9, slo_kept=False)
    telemetry.done(KEY, warm=True, parts_ns=parts, items=1, run_items=1, at_ns=9)
    telemetry.failed(("t/a", "", "u"), "expired", 5, PromiseEnd.LATE)
    telemetry.failed(("t/a", "", "u"), "failed", 5)
    figures = telemetry.of_application("t/a").values()
    assert [sum(counts) for counts in zip(*(f.promised.totals for f in figures), strict=True)] == [1, 2, 0, 0]
    assert (sum(f.slo_requests for f in figures), sum(f.slo_kept for f in figures)) == (3, 1)
    telemetry.forget_slo("t/a")
    assert [f.slo_requests for f in telemetry.of_application("t/a").values()] == [0, 0]
