"""The commands that show what a real box does and why: decisions, memory, and applications that are changed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cli.main import main
from appliance.client import Client
from appliance.domain.errors import DeadlineExceeded
from appliance.wire.access import KeyOrder
from tests import toys
from tests.e2e.conftest import Run
from tests.e2e.polling import until
from tests.e2e.server import Server, brought, running_server

pytestmark = [
    pytest.mark.nightly("a server of its own for what the commands show"),
    pytest.mark.usefixtures("processes", "ports"),
    pytest.mark.timeout(240),
]
INPUTS = '{"inputs": {"A": [[1, 2, 3, 4]], "B": [[10, 10, 10, 10]]}}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A box with `add`, which both tenants may call."""
    folder = tmp_path_factory.mktemp("box")
    with running_server(folder / "state") as running:
        with running.client() as client:
            client.create_tenant("harbour")
            brought(client, toys.tiny_add(folder / "add.onnx"), "add", "tensor", shared=True)
        yield running


def test_empty_list_names_its_tenant_and_tells_an_admin_what_the_box_has(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tenant's key is told of its tenant alone."""
    monkeypatch.setenv("APPLIANCE_STATE_DIR", str(server.state_dir))
    with server.client() as client:
        key = client.create_key("harbour", KeyOrder()).key
    of_all = "\nAll tenants together have 1 model: --tenant NAME shows another tenant's."
    for options, tenant, more in (((), "default", of_all), (("--key", key), "harbour", "")):
        with pytest.raises(SystemExit):
            main(("pipelines", "list", *options))
        hint = "make one with: appliance pipelines create FILE"
        assert capsys.readouterr().err == f"The tenant {tenant} has no pipeline yet; {hint}{more}\n"


@pytest.fixture
def asked(server: Server, tmp_path: Path, appliance: Run) -> Path:
    """A file of inputs that the model has been asked with: in time, and with a deadline that cannot be kept."""
    inputs = tmp_path / "inputs.json"
    inputs.write_text(INPUTS)
    appliance("predict", "add", str(inputs))
    with server.client() as client, pytest.raises(DeadlineExceeded):
        client.predict("add", INPUTS.encode(), content_type="application/json", timeout_ms=0.001)
    return inputs


def _decided(client: Client) -> list[int]:
    return [one.id for one in client.decisions(application="add")]


def test_decisions_command_lists_shows_and_replays(server: Server, asked: Path, appliance: Run) -> None:
    """Newest first, by filters; a replayed decision is equal; an unknown decision is a sentence."""
    with server.client() as client:
        until(lambda: bool(_decided(client)), "the decision to drop the second request is written")
    listed = json.loads(appliance("decisions", "list", "--json"))
    ids = [one["id"] for one in listed]
    assert ids == sorted(ids, reverse=True)
    dropped = json.loads(appliance("decisions", "list", "--outcome", "dropped", "--kind", "drop", "--json"))
    assert dropped
    assert {one["answer"]["outcome"] for one in dropped} == {"dropped"}
    assert json.loads(appliance("decisions", "list", "--kind", "residency", "--outcome", "dropped", "--json")) == []
    assert json.loads(appliance("decisions", "list", "--application", "nobody", "--json")) == []
    assert json.loads(appliance("decisions", "list", "--limit", "1", "--json")) == listed[:1]

    table = appliance("decisions", "list")
    assert table.splitlines()[0].split()[:2] == ["id", "at"]
    assert listed[0]["reason"] in table
    decided = listed[-1]
    shown = appliance("decisions", "show", str(decided["id"]))
    assert f"because {decided['reason']}" in shown
    assert "deadline_ms 0.001" in shown
    assert json.loads(appliance("decisions", "show", str(decided["id"]), "--json")) == decided

    again = appliance("decisions", "replay", str(decided["id"]))
    assert again.splitlines()[-1] == "equal"
    assert json.loads(appliance("decisions", "replay", str(decided["id"]), "--json"))["differs"] == []
    assert "there is no decision '999999'" in appliance("decisions", "show", "999999", status=1)


def test_tenant_key_sees_decisions_of_its_own_tenant_only(server: Server, asked: Path, appliance: Run) -> None:
    """A decision that did not concern the tenant is unknown, also when its number is known."""
    with server.client() as client:
        until(lambda: bool(_decided(client)), "the decision to drop the second request is written")
        (first, *_) = _decided(client)
    key = appliance("keys", "create", "harbour").strip()
    assert json.loads(appliance("decisions", "list", "--key", key, "--json")) == []
    assert f"there is no decision '{first}'" in appliance("decisions", "show", str(first), "--key", key, status=1)


def test_memory_command_shows_and_watches_resident_builds(server: Server, asked: Path, appliance: Run) -> None:
    """The build that was asked stands in the bar, in a row and in the JSON; --watch ends with Ctrl-C."""
    (build,) = json.loads(appliance("memory", "--json"))["builds"]
    assert (build["variant"], build["applications"]) == ("fp32", ["default/add"])
    shown = appliance("memory").splitlines()
    assert shown[1].startswith("[")
    assert any(line.split()[:3] == ["A", "default/add", "fp32"] for line in shown)
    assert any(line.startswith("default ") for line in shown)

    command = [sys.executable, "-m", "appliance", "memory", "--watch", "--every-s", "0.1", "--json"]
    with subprocess.Popen([*command, "--state", str(server.state_dir)], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        looks = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(120) == 130
    assert [look["builds"][0]["variant"] for look in looks] == ["fp32", "fp32"]


def test_system_command_shows_the_python_build(server: Server, asked: Path, appliance: Run) -> None:
    shown = json.loads(appliance("system", "--json"))
    assert shown["python_build"]
    said = appliance("system")
    assert f"Python        {shown['python']} ({shown['python_build']})" in said
    assert "1, 1 application" in said


def test_applications_change_command_changes_named_fields_only(server: Server, asked: Path, appliance: Run) -> None:
    """Named fields change at once; --no-slo takes the promise away; an unknown name is a sentence."""

    def now() -> tuple[object, object, object]:
        one = next(a for a in json.loads(appliance("applications", "list", "--json")) if a["name"] == "add")
        return one["latency_slo_ms"], one["weight"], one["accuracy_min"]

    assert now() == (None, 1, 0)
    assert "is changed" in appliance("applications", "change", "add", "--slo-ms", "500", "--weight", "2")
    assert now() == (500, 2, 0)
    changed = json.loads(
        appliance("applications", "change", "add", "--no-slo", "--accuracy-min", "0.5", "--strict", "--json")
    )
    assert (changed["latency_slo_ms"], changed["accuracy_min"]) == (None, 0.5)
    assert now() == (None, 2, 0.5)
    assert "no application 'nobody'" in appliance("applications", "change", "nobody", "--weight", "2", status=1)
