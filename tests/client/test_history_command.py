"""What happened, at a terminal: `appliance history`, over a real port."""

import json
import re

import pytest

from appliance.cli.history import course, row, seconds_of
from appliance.cli.promise_text import percent
from appliance.terminal.failure import CommandFailed
from appliance.wire.catalogue import ApplicationChange
from appliance.wire.history import SeriesShape
from tests.client.conftest import Port
from tests.e2e.polling import until


def test_history_command_shows_series_and_memory_stays(port: Port) -> None:
    """As a table and as JSON; a tenant's key sees its own series only."""
    with port.client("admin") as admin:
        until(lambda: "disk" in admin.history().known, "the first sample")
    shown = port.run("admin", "history")
    assert shown.split()[0] == "series"
    assert {"up", "memory", "budget", "disk"} <= {line.split()[0] for line in shown.splitlines()}
    told = json.loads(port.run("admin", "history", "--last", "30d", "up", "disk", "--json"))
    assert [one["name"] for one in told["series"]] == ["up", "disk"]
    assert {"up", "disk"} <= set(port.run("admin", "history", "--list").split())
    assert "disk" not in port.run("harbour", "history", "--list").split()
    assert port.invoke("harbour", "history", "disk").exit_code != 0
    with port.client("probe") as device:
        device.predict("adding", {"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 1, 1, 1]]}})
    assert "default/adding" in port.run("admin", "history", "--memory")
    assert json.loads(port.run("admin", "history", "--memory", "--json"))["is_whole"] is True


def test_application_and_tenants_commands_show_what_was_kept_and_used(port: Port) -> None:
    """Three shares of an application's SLO, and who asked most, as a table and as JSON."""
    with port.client("admin") as admin:
        admin.change_application("adding", ApplicationChange(latency_slo_ms=60_000))
        for _ in range(3):
            admin.predict("adding", {"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 1, 1, 1]]}})
        until(lambda: admin.promises(application="adding")[0].month.kept == 3, "the next sample")
    shown = port.run("admin", "applications", "show", "adding")
    for span in ("hour", "day", "month"):
        assert re.search(rf"last {span} +100\.00 % of 3\b", shown)
    [promise] = json.loads(port.run("admin", "applications", "show", "adding", "--json"))["promises"]
    assert (promise["of"], promise["month"]["kept"]) == ("requests", 3)
    port.run("admin", "applications", "change", "adding", "--no-slo")
    for sort, field in (("requests", "requests"), ("processor", "processor_s")):
        listed = json.loads(port.run("admin", "tenants", "list", "--over", "hour", "--sort", sort, "--json"))
        figures = [one["used"][field] for one in listed]
        assert figures == sorted(figures, reverse=True)
        assert {one["name"]: one["used"]["requests"] for one in listed}["default"] >= 3
    assert [one["name"] for one in json.loads(port.run("harbour", "tenants", "list", "--json"))] == ["harbour"]


def test_share_that_was_kept_is_a_hundred_percent_only_where_nothing_was_broken() -> None:
    assert [percent(share) for share in (1.0, 0.99999, 0.57, 0.0)] == ["100.00 %", "99.99 %", "57.00 %", "0.00 %"]


def test_history_row_has_unit_range_and_sparkline() -> None:
    """A blank where nothing was sampled, and one bar of many where nothing has changed."""
    one = SeriesShape(name="memory", unit="bytes", mean=[1e6, None, 2e6], least=[1e6, None, 0], most=[1e6, None, 9e6])
    assert row(one) == ("memory", "1.5 MB", "0 B", "9.0 MB", "▁ █")
    assert row(SeriesShape(name="warm", unit="share", mean=[0.5], least=[0.5], most=[1])) == (
        "warm",
        "50.0 %",
        "50.0 %",
        "100.0 %",
        "▁",
    )
    assert row(SeriesShape(name="p99", unit="ms", mean=[None], least=[None], most=[None]))[1:] == ("–", "–", "–", "")
    assert course([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"


def test_history_duration_is_a_number_and_a_unit() -> None:
    """Anything else is refused with an example."""
    assert [seconds_of(text) for text in ("30m", "1.5h", "30d")] == [1800, 5400, 2_592_000]
    for text in ("", "h", "-1h", "1", "1w", "nanh", "9999999d"):
        with pytest.raises(CommandFailed, match="for example 24h"):
            seconds_of(text)
