"""The report tells a simulation on one page that stands alone."""

import re

from appliance.lab.journal import Edge
from appliance.lab.report import report
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.lab.timeline import columns, timeline_of, windows_of
from tests.lab.scenarios import document, scenario

S = 10**9


def test_report_page_stands_alone_and_shows_every_application() -> None:
    read = scenario(policies={"eviction": "ws-bfe"})
    page = report(read, simulate(read, keep_journal=True), "a <title>")
    assert page.startswith("<!doctype html>")
    assert "a &lt;title&gt;" in page
    assert "<title>a <title>" not in page
    assert not re.search(r"(src|href)=|https?:|@import|url\(", page)
    for text in ("door", "captions", "budget 700 MB", "ws-bfe", "faces fp32", "words"):
        assert text in page


def test_report_page_escapes_names_of_the_scenario() -> None:
    written = document()
    written["applications"][0]["name"] = written["arrivals"][0]["application"] = "<script>alert(1)</script>"
    read = parse_scenario(written)
    assert "<script>" not in report(read, simulate(read, keep_journal=True), "x")


def test_report_page_of_a_simulation_without_requests_exists() -> None:
    read = scenario(arrivals=[])
    assert "0 + 0" in report(read, simulate(read, keep_journal=True), "quiet")


def test_report_timeline_has_stays_and_windows_of_the_journal() -> None:
    read = scenario()
    run = simulate(read, keep_journal=True)
    loaded = [e for e in run.journal.events if e.name == "variant loaded"]
    line = timeline_of(read, run.journal, run.outcome.end_ns)
    assert len(line.stays) == len(loaded) == run.outcome.loads
    assert {s.model for s in line.stays} == {"faces", "words"}
    assert all(s.start_ns < s.end_ns <= line.end_ns for s in line.stays)
    assert line.windows


def test_report_window_still_open_lasts_to_the_end() -> None:
    edges = [Edge(at_s * S, "default/door", opens) for at_s, opens in ((1, True), (2, False), (5, True))]
    windows = windows_of(scenario(), edges, 9 * S)
    assert [(w.model, w.start_ns, w.end_ns) for w in windows] == [("faces", S, 2 * S), ("faces", 5 * S, 9 * S)]


def test_report_budget_line_follows_the_box() -> None:
    read = scenario(faults=[{"kind": "memory-taken", "at_s": 30, "for_s": 30, "mb": 200}])
    run = simulate(read, keep_journal=True)
    budgets = timeline_of(read, run.journal, run.outcome.end_ns).budgets
    assert budgets[0] == (0, 700_000_000)
    assert min(budget for _, budget in budgets) <= 500_000_000
    assert budgets[-1][1] == 700_000_000
    assert 30 * S <= budgets[1][0] < 32 * S


def test_report_spans_are_joined_by_column() -> None:
    assert columns([(0, 10), (11, 20), (70, 71)], 100, 10) == [(0, 2), (7, 8)]
    assert columns([], 100, 10) == []
