"""A running box as a scenario: the lab takes it at once, and its traffic can be sent to the box again."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from appliance.cli.main import app
from appliance.demo.zoo.toys import digits
from appliance.lab.scenario import read_scenario
from appliance.wire.access import QuotaShape
from appliance.wire.catalogue import ApplicationOrder
from tests.e2e.server import Server, brought, running_server
from tests.toys import tiny_add

pytestmark = [
    pytest.mark.nightly("a server's decisions are simulated again"),
    pytest.mark.usefixtures("processes", "ports"),
]
SETTINGS = {
    "APPLIANCE_MEMORY__LOADS_PARALLEL_MAX": "3",
    "APPLIANCE_MEMORY__BUDGET_BYTES": "200000000",
    "APPLIANCE_MEMORY__WAIT_MS_MAX": "75000",
    "APPLIANCE_QUEUES__LEN_MAX": "99",
    "APPLIANCE_RESIDENCY__ALPHA": "0.75",
}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> "Server":  # type: ignore[misc]
    """A box of two tenants that both call an application `add`; nobody has asked yet."""
    folder = tmp_path_factory.mktemp("box")
    with running_server(folder / "state", **SETTINGS) as server:
        with server.client() as client:
            brought(client, tiny_add(folder / "add.onnx"), "add", "tensor")
            client.create_tenant(
                "second", QuotaShape(requests_per_s=500, memory_guarantee_bytes=2_000_000, memory_share=0.5)
            )
        with server.client(tenant="second") as client:
            brought(client, tiny_add(folder / "add.onnx"), "add", "tensor")
            brought(client, digits(folder / "digits").model, "digits", "image-classification")
        yield server


def _run(box: Server, *arguments: str) -> str:
    where = ["--url", box.url, "--key", box.admin_key]
    done = CliRunner().invoke(app, [*arguments, *(where if arguments[0] != "simulate" else [])])
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_exported_scenario_runs_in_the_lab_and_on_the_box_alike(box: Server, tmp_path: Path) -> None:
    """TOML out of the box, the same requests in the lab and on the box, the same keys from both."""
    path = tmp_path / "box.toml"
    _run(box, "scenario", "-o", str(path), "--rate-rps", "8", "--duration-s", "5")
    read = read_scenario(path)
    assert {(a.tenant, a.name) for a in read.applications} == {
        ("default", "default/add"),
        ("second", "second/add"),
        ("second", "digits"),
    }
    settings = read.box.loads_parallel_max, read.box.wait_ms_max, read.box.queue_len_max, read.box.residency.alpha
    assert settings == (3, 75_000, 99, 0.75)
    assert (read.box.queue_total_max, read.box.residency.tick_ms) == (4096, 20)
    default, second = read.tenants
    assert (default.name, default.rate_rps, default.guarantee_mb, default.ceiling_mb) == ("default", None, 0, None)
    assert (second.name, second.rate_rps, second.guarantee_mb) == ("second", 500, 2)
    assert (read.box.memory_mb, second.ceiling_mb) == (200, 100)
    variants = [v for model in read.models for v in model.variants]
    assert all(v.size_mb > 0 and v.load_ms > 0 and v.latency_ms["cpu"]["1"] > 0 for v in variants)

    simulated = json.loads(_run(box, "simulate", str(path), "--json", "--seed", "5"))
    replayed = json.loads(_run(box, "replay", str(path), "--json", "--seed", "5"))
    assert set(simulated) <= set(replayed)
    assert simulated["requests"] == replayed["requests"] > 60
    assert replayed["warm"] + replayed["cold"] == replayed["requests"]
    assert 0 < replayed["latency_ms"]["p50"] < replayed["client_latency_ms"]["p50"]
    assert {name: row["requests"] for name, row in simulated["applications"].items()} == {
        name: row["requests"] for name, row in replayed["applications"].items()
    }
    assert replayed["memory_peak_mb"] > 0

    again = json.loads(_run(box, "scenario", "--json", "--rate-rps", "0"))
    assert all(entry["poisson_rps"] > 0 for entry in again["arrivals"])


def test_replay_names_an_application_that_the_box_lacks(box: Server, tmp_path: Path) -> None:
    """One sentence, status 1, and nothing is sent."""
    path = tmp_path / "box.json"
    document = json.loads(_run(box, "scenario", "--json", "--rate-rps", "5"))
    for application in document["applications"]:
        application["name"] = "nobody"
    document["applications"], document["arrivals"] = (
        document["applications"][:1],
        [{"application": "nobody", "poisson_rps": 5}],
    )
    path.write_text(json.dumps(document))
    done = CliRunner().invoke(app, ["replay", str(path), "--url", box.url, "--key", box.admin_key])
    assert done.exit_code == 1
    assert "the box does not serve 'nobody'" in str(done.exception)


def _moving_sum(path: Path) -> Path:
    """`Y` = `X` × `gain` + `S`, and the next `S` is `Y`: stateful, with a constant of rank 0."""
    row = [1, 2]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, row) for name in ("X", "S")]
    inputs.append(helper.make_tensor_value_info("gain", TensorProto.FLOAT, []))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, row) for name in ("Y", "SN")]
    nodes = [
        helper.make_node("Mul", ["X", "gain"], ["scaled"], "scale"),
        helper.make_node("Add", ["scaled", "S"], ["Y"], "add"),
        helper.make_node("Identity", ["Y"], ["SN"], "keep"),
    ]
    graph = helper.make_graph(nodes, "moving_sum", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.timeout(300)
def test_replay_sends_sequences_to_stateful_models_and_reports_failures(box: Server, tmp_path: Path) -> None:
    """Every request of the sequences is answered; an application whose SLO is impossible is reported with its problem
    and an example.
    """
    state = [{"input": "S", "output": "SN", "shape": [1, 2]}]
    metadata = {"precisions": [], "state": state, "constants": {"gain": 0.5}}
    with box.client() as client:
        brought(client, _moving_sum(tmp_path / "sum.onnx"), "sum", "tensor", metadata=metadata)
        client.create_application(ApplicationOrder(name="hasty", model="add", latency_slo_ms=0.001))
    document = json.loads(_run(box, "scenario", "--json"))
    document["applications"] = [a for a in document["applications"] if a["name"] in ("sum", "hasty")]
    document["arrivals"] = [{"application": name, "poisson_rps": 20} for name in ("sum", "hasty")]
    path = tmp_path / "sum.json"
    path.write_text(json.dumps(document | {"duration_s": 4}))
    replayed = json.loads(_run(box, "replay", str(path), "--json", "--seed", "3"))
    summed, hasty = (replayed["applications"][name] for name in ("sum", "hasty"))
    assert summed["requests"] == summed["warm"] + summed["cold"] > 32, replayed["failures"]
    (failures,) = replayed["failures"]
    assert (failures["application"], failures["problem"], failures["status"]) == ("hasty", "deadline-exceeded", 504)
    assert failures["count"] == hasty["requests"] == hasty["dropped"] > 0
    assert "deadline" in failures["example"] or "ms" in failures["example"]
    shown = _run(box, "replay", str(path), "--duration-s", "1")
    assert "deadline-exceeded" in shown
