"""Each contract of .importlinter breaks when a fault is planted that the contract is there for.

`scripts/check` shows that the tree as it is keeps them all.
"""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Fault(NamedTuple):
    """A line to plant at the end of a module of `appliance`, and what the report of the contract must then say."""

    contract: str
    module: str
    line: str
    report: str


FAULTS = [
    Fault(
        "layers", "domain/planted.py", "import appliance.modelstore", "appliance.domain.planted -> appliance.modelstore"
    ),
    Fault("layers", "helpers/__init__.py", "", "not listed as layers: - appliance.helpers"),
    Fault("pure", "policies/residency/lru.py", "import time", "appliance.policies.residency.lru -> time"),
    Fault("pure", "domain/names.py", "import appliance.clock", "appliance.domain is not allowed to import time"),
    Fault("light-client", "client/planted.py", "import sqlmodel", "appliance.client.planted -> sqlmodel"),
    Fault(
        "device",
        "client/planted.py",
        "import appliance.policies.offload",
        "appliance.client.planted -> appliance.policies.offload",
    ),
    Fault(
        "protected",
        "api/planted.py",
        "import appliance.runtime.processors",
        "appliance.api.planted -> appliance.runtime.processors",
    ),
    Fault(
        "settings",
        "runtime/serving/engine.py",
        "import appliance.settings",
        "appliance.runtime.serving.engine -> appliance.settings",
    ),
    Fault(
        "families",
        "policies/residency/lru.py",
        "import appliance.policies.selection",
        "appliance.policies.residency.lru -> appliance.policies.selection",
    ),
    Fault(
        "acyclic",
        "domain/errors/inputs.py",
        "import appliance.domain.names",
        "No cycles are allowed in appliance.domain.",
    ),
    Fault(
        "rooms",
        "runtime/memory/room.py",
        "import appliance.runtime.residency.groups",
        "appliance.runtime.memory.room -> appliance.runtime.residency.groups",
    ),
    Fault(
        "engine",
        "runtime/engine/work.py",
        "import appliance.runtime.engine.scheduler",
        "appliance.runtime.engine.work -> appliance.runtime.engine.scheduler",
    ),
    Fault(
        "data-path",
        "runtime/serving/queue.py",
        "import appliance.runtime.serving.engine",
        "appliance.runtime.serving.queue -> appliance.runtime.serving.engine",
    ),
    Fault(
        "sessions",
        "runtime/sessions/frame.py",
        "import appliance.runtime.sessions.sessions",
        "appliance.runtime.sessions.frame -> appliance.runtime.sessions.sessions",
    ),
    Fault(
        "pipelines",
        "runtime/pipelines/frame.py",
        "import appliance.runtime.pipelines.pipelines",
        "appliance.runtime.pipelines.frame -> appliance.runtime.pipelines.pipelines",
    ),
    Fault(
        "residency",
        "runtime/residency/groups.py",
        "import appliance.runtime.residency.loop",
        "appliance.runtime.residency.groups -> appliance.runtime.residency.loop",
    ),
    Fault(
        "profiles",
        "runtime/profiles/estimate.py",
        "import appliance.runtime.profiles.store",
        "appliance.runtime.profiles.estimate -> appliance.runtime.profiles.store",
    ),
    Fault(
        "memory",
        "runtime/memory/ledger.py",
        "import appliance.runtime.memory.manager",
        "appliance.runtime.memory.ledger -> appliance.runtime.memory.manager",
    ),
    Fault(
        "store",
        "modelstore/stages/graph.py",
        "import appliance.modelstore.store.store",
        "appliance.modelstore.stages.graph -> appliance.modelstore.store.store",
    ),
    Fault("onnx", "modelstore/store/blobs.py", "import onnx", "appliance.modelstore.store.blobs -> onnx"),
    Fault("http", "api/http/sse.py", "import appliance.api.box", "appliance.api.http.sse -> appliance.api.box"),
]


def contract_names() -> dict[str, str]:
    """Return the title of each contract by its id."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    prefix = "importlinter:contract:"
    return {s.removeprefix(prefix): config[s]["name"] for s in config.sections() if s.startswith(prefix)}


def report_by_contract(report: str) -> dict[str, str]:
    """Return what the linter says of each broken contract, by its title, with all white space as single spaces."""
    titled = re.split(r"\n([^\n]+)\n-+\n", report.split("Broken contracts\n")[1])
    return {title: " ".join(text.split()) for title, text in zip(titled[1::2], titled[2::2], strict=True)}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, processes: None) -> dict[str, str]:
    """The linter's report on a copy of the package with all faults planted."""
    copy = tmp_path_factory.mktemp("planted")
    shutil.copytree(ROOT / "appliance", copy / "appliance", ignore=shutil.ignore_patterns("__pycache__", "web_ui"))
    for fault in FAULTS:
        module = copy / "appliance" / fault.module
        module.parent.mkdir(exist_ok=True)
        with module.open("a") as text:
            text.write(f"\n{fault.line}\n")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    options = ["--config", str(ROOT / ".importlinter"), "--no-cache"]
    linted = subprocess.run([*command, *options], cwd=copy, capture_output=True, text=True, check=False)
    assert linted.returncode == 1, linted.stdout + linted.stderr
    return report_by_contract(linted.stdout)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.contract}-{fault.module}")
def test_planted_import_fault_breaks_its_contract(report: dict[str, str], fault: Fault) -> None:
    assert fault.report in report[contract_names()[fault.contract]]


def test_import_contracts_all_have_a_planted_fault() -> None:
    assert {fault.contract for fault in FAULTS} == set(contract_names())


def test_package_folders_all_have_an_init_module() -> None:
    """Without one a folder would be invisible to the contracts (Alembic runs its versions as scripts)."""
    folders = {module.parent for module in (ROOT / "appliance").rglob("*.py")} - {
        ROOT / "appliance/modelstore/store/migrations/versions"
    }
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
