"""`appliance applications` against a running box."""

from typer.testing import CliRunner, Result

from appliance.cli.main import app
from appliance.domain.errors import SloNotKept
from tests.client.conftest import Port


def _invoke(port: Port, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["applications", *arguments, "--url", port.url, "--key", port.keys["harbour"]])


def _run(port: Port, *arguments: str) -> tuple[str, str]:
    done = _invoke(port, *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout, done.stderr


def test_applications_command_reports_impossible_and_kept_slo(port: Port) -> None:
    """`create` warns, `--strict` refuses, `show` tells the share of requests that kept the SLO."""
    hasty = ("create", "hasty", "--model", "digits", "--latency-slo-ms", "0.001")
    refused = _invoke(port, *hasty, "--strict").exception
    assert isinstance(refused, SloNotKept)
    assert str(refused).startswith("no variant keeps 0.001 ms")
    _, said = _run(port, *hasty)
    assert "warning: no variant keeps 0.001 ms: the fastest, fp32, takes" in said
    shown, said = _run(port, "show", "hasty")
    assert "0.001 ms, not asked yet" in shown
    assert "warning: no variant keeps" in said
    _run(port, "create", "patient", "--model", "adding", "--latency-slo-ms", "60000")
    body = '{"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 2, 3, 4]]}}'
    with port.client("harbour") as client:
        for _ in range(2):
            client.predict("patient", body.encode(), content_type="application/json")
    shown, said = _run(port, "show", "patient")
    assert "60000 ms, kept for 100.0 % of 2 requests" in shown
    assert said == ""
    for name in ("hasty", "patient"):
        _run(port, "delete", name)
