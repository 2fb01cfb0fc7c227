"""`appliance cut` shows the parts of a network for a kind of processor that is not here."""

import json
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from appliance.cli.main import app
from appliance.modelstore.orders import WITH_LIMITS
from appliance.modelstore.stages.vendor_limits import TABLES
from tests import toys
from tests.modelstore.networks import relu, write


def told(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["cut", *arguments], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_vendor_limits_have_a_table_for_each_kind() -> None:
    assert tuple(TABLES) == WITH_LIMITS


@pytest.mark.usefixtures("processes")
def test_cut_command_lists_parts_with_their_processor_kinds(tmp_path: Path) -> None:
    """An accelerator for convolutions has most of a ShuffleNet, and not what moves channels about."""
    path = str(toys.shufflenet(tmp_path / "net.onnx"))
    parts = json.loads(told(path, "--json"))["parts"]
    assert 2 <= len(parts) <= 16
    assert {tuple(part["kinds"]) for part in parts} == {("cpu",), ("cpu", "dla")}
    assert "path" not in parts[0]
    lines = told(path, "--parts-max", "4").splitlines()
    assert len(lines) == 5
    assert "cpu dla" in "".join(lines)
    assert len(onnx.load(path).graph.node) > 100


@pytest.mark.usefixtures("processes")
def test_cut_command_says_why_a_network_stays_whole(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["cut", write(relu((1, 3, 4, 4)), tmp_path, "net.onnx")])
    assert done.exit_code == 0
    assert "stays whole: all of it runs on the same kinds of processors" in " ".join(done.stderr.split())


@pytest.mark.parametrize("wrong", [["--for", "abacus"], ["--task", "abacus"]])
def test_cut_command_refuses_unknown_kind_or_task(tmp_path: Path, wrong: list[str]) -> None:
    done = CliRunner().invoke(app, ["cut", write(relu(), tmp_path, "net.onnx"), *wrong])
    assert done.exit_code == 1
    assert "abacus" in str(done.exception)
