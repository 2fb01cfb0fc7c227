"""`appliance applications` against a running box."""

from appliance.domain.errors import SloNotKept
from tests.client.conftest import Port


def test_applications_command_reports_impossible_and_kept_slo(port: Port) -> None:
    """`create` warns, `--strict` refuses, `show` tells the share of requests that kept the SLO."""
    hasty = ("applications", "create", "hasty", "--model", "digits", "--latency-slo-ms", "0.001")
    refused = port.invoke("harbour", *hasty, "--strict").exception
    assert isinstance(refused, SloNotKept)
    assert str(refused).startswith("no variant keeps 0.001 ms")
    said = port.invoke("harbour", *hasty).stderr
    assert "warning: no variant keeps 0.001 ms: the fastest, fp32, takes" in said
    shown = port.invoke("harbour", "applications", "show", "hasty")
    assert "0.001 ms, not asked yet" in shown.stdout
    assert "warning: no variant keeps" in shown.stderr
    port.run("harbour", "applications", "create", "patient", "--model", "adding", "--latency-slo-ms", "60000")
    body = '{"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 2, 3, 4]]}}'
    with port.client("harbour") as client:
        for _ in range(2):
            client.predict("patient", body.encode(), content_type="application/json")
    shown = port.invoke("harbour", "applications", "show", "patient")
    assert "60000 ms, kept for 100.0 % of 2 requests" in shown.stdout
    assert shown.stderr == ""
    for name in ("hasty", "patient"):
        port.run("harbour", "applications", "delete", name)
