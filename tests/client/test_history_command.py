"""What happened, at a terminal: `appliance history`, over a real port."""

import json

import pytest
from typer.testing import CliRunner

from appliance.cli.history import course, row, seconds_of
from appliance.cli.main import app
from appliance.terminal.failure import CommandFailed
from appliance.wire.history import SeriesShape
from tests.client.conftest import Port
from tests.e2e.waiting import until


def test_history_command_shows_series_and_memory_stays(port: Port) -> None:
    """As a table and as JSON; a tenant's key sees its own series only."""
    who = ["--url", port.url, "--key", port.keys["admin"]]
    with port.client("admin") as admin:
        until(lambda: "disk" in admin.history().known, "the first sample")
    shown = CliRunner().invoke(app, ["history", *who])
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.split()[0] == "series"
    assert {"up", "memory", "budget", "disk"} <= {line.split()[0] for line in shown.stdout.splitlines()}
    told = json.loads(CliRunner().invoke(app, ["history", "--last", "30d", "up", "disk", "--json", *who]).stdout)
    assert [one["name"] for one in told["series"]] == ["up", "disk"]
    listed = CliRunner().invoke(app, ["history", "--list", *who]).stdout.split()
    assert {"up", "disk"} <= set(listed)
    own = ["--url", port.url, "--key", port.keys["harbour"]]
    assert "disk" not in CliRunner().invoke(app, ["history", "--list", *own]).stdout.split()
    refused = CliRunner().invoke(app, ["history", "disk", *own])
    assert refused.exit_code != 0
    with port.client("probe") as device:
        device.predict("adding", {"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 1, 1, 1]]}})
    stays = CliRunner().invoke(app, ["history", "--memory", *who])
    assert stays.exit_code == 0, stays.stderr
    assert "default/adding" in stays.stdout
    assert json.loads(CliRunner().invoke(app, ["history", "--memory", "--json", *who]).stdout)["is_whole"] is True


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
