"""Pipelines by the client and by `appliance pipelines`, over a real port."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from appliance.client import Client
from appliance.demo.pipelines import DemoPipeline
from appliance.demo.tenancy import Tenancy
from appliance.demo.zoo import toys
from appliance.domain.errors import ApplicationInUse, SloTooSmall, TooManyStages, UnknownPipeline, UnknownStage
from appliance.wire.pipelines import AskOrder, PipelineChange, PipelineOrder
from tests.client.conftest import Port
from tests.e2e.polling import until

TOML = """
name = "one"
latency_slo_ms = 500

[[stages]]
name = "what"
application = "digits"
"""


@pytest.fixture
def box(port: Port) -> Client:
    return port.client("harbour")


def run(port: Port, *words: str) -> Result:
    return port.invoke("harbour", "pipelines", *words)


def told_when(port: Port, holds: Callable[[Result], bool], *words: str) -> str:
    """What a command says once it holds: a box asks its planner for seconds only, and a busy machine takes longer."""
    told: list[Result] = []

    def is_so() -> bool:
        told.append(run(port, *words))
        return holds(told[-1])

    until(is_so, f"pipelines {' '.join(words)}")
    return told[-1].stdout


def test_client_defines_joins_changes_and_deletes_a_pipeline(box: Client) -> None:
    """Errors are those of the domain, with their facts."""
    with box:
        order = PipelineOrder(name="one", latency_slo_ms=500, stages=[AskOrder(name="what", application="digits")])
        made = box.create_pipeline(order)
        assert [one.name for one in box.pipelines()] == ["one"]
        client = box.join_pipeline("one", 5)
        assert box.pipeline("one").clients == [client]
        box.leave_pipeline("one", client.id)
        assert box.change_pipeline("one", PipelineChange(latency_slo_ms=600)).latency_slo_ms == 600
        with pytest.raises(ApplicationInUse) as used:
            box.delete_application("digits")
        assert list(used.value.pipelines) == ["one"]
        with pytest.raises(UnknownStage) as unknown:
            box.change_pipeline("one", PipelineChange(stages=[*made.stages, AskOrder(name="x", application="digits",
                                                                                    after=["y"])]))  # fmt: skip
        assert unknown.value.key == "stages[1].after"
        with pytest.raises(SloTooSmall):
            box.change_pipeline("one", PipelineChange(latency_slo_ms=0.0001))
        with pytest.raises(TooManyStages):
            PipelineOrder(name="x", latency_slo_ms=5, stages=[made.stages[0]] * 17)
        box.delete_pipeline("one")
        with pytest.raises(UnknownPipeline):
            box.pipeline("one")


def test_demo_defines_a_pipeline_once_with_an_slo_that_is_possible(port: Port, box: Client) -> None:
    """On a machine that is too slow for the SLO, with a longer one, which a second run finds."""
    order = PipelineOrder(name="demo", latency_slo_ms=0.0001, stages=[AskOrder(name="what", application="digits")])
    tenancy = Tenancy(port.url, port.state_dir)
    tenancy.make(["harbour"])
    tenancy.device_key("harbour", applications=["digits"])
    with box:
        for _ in range(2):
            tenancy.define(DemoPipeline("harbour", order, "digits", 1.0))
            assert box.pipeline("demo").latency_slo_ms > 0.0001
        box.delete_pipeline("demo")
    tenancy.close()


def test_pipelines_command_creates_calls_and_deletes_pipelines(port: Port, digits: toys.Digits, tmp_path: Path) -> None:
    """Create from TOML and JSON, list, show, change, join, predict, leave, delete; a bad file is one sentence."""
    toml, other = tmp_path / "one.toml", tmp_path / "two.json"
    toml.write_text(TOML)
    assert "pipeline one is defined" in run(port, "create", str(toml)).stdout
    shown = json.loads(run(port, "show", "one", "--json").stdout)
    other.write_text(json.dumps({key: shown[key] for key in ("name", "latency_slo_ms", "stages")}))
    assert "pipeline two is defined" in run(port, "create", str(other), "--name", "two").stdout
    listed = run(port, "list").stdout
    assert "one" in listed
    assert "two" in listed
    told = told_when(port, lambda shown: "nothing is reserved for it" in shown.stdout, "show", "one")
    assert "harbour/one   SLO 500 ms" in told
    assert "what          digits" in told
    assert run(port, "change", "one", "--slo-ms", "400").exit_code == 0
    assert json.loads(run(port, "show", "one", "--json").stdout)["latency_slo_ms"] == 400
    client = told_when(port, lambda joined: joined.exit_code == 0, "join", "one", "--fps", "1").strip()
    assert client in run(port, "show", "one").stdout
    picture = next(digits.evaluation.glob("*.png"))
    for frame in ("1", "2"):
        sent = run(port, "predict", "one", str(picture), "--client", client, "--frame", frame, "--json")
        assert json.loads(sent.stdout)["items"][0]["stage"] == "what"
    later = json.loads(run(port, "predict", "one", str(picture), "--no-wait", "--json").stdout)
    assert set(later) == {"id", "state"}
    unknown = run(port, "predict", "one", str(picture), "--client", "none")
    assert unknown.exit_code == 1
    assert "has left" in run(port, "leave", "one", client).stdout
    assert client not in run(port, "show", "one").stdout
    toml.write_text(TOML.replace("name = ", "nmae = "))
    wrong = run(port, "create", str(toml))
    assert wrong.exit_code == 1
    assert "nmae" in str(wrong.exception)
    other.write_text("{")
    assert run(port, "create", str(other)).exit_code == 1
    assert run(port, "create", str(tmp_path / "none.toml")).exit_code == 1
    for name in ("one", "two"):
        assert run(port, "delete", name).exit_code == 0
    assert run(port, "show", "one").exit_code == 1
