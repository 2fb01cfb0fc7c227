"""Each contract of .importlinter holds today and breaks when a fault that it is there for is planted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULTS = {
    "layers": ("domain/planted.py", "import appliance.modelstore"),
    "layers-new-package": ("helpers/__init__.py", ""),
    "pure": ("policies/residency/lru.py", "import time"),
    "pure-indirect": ("domain/names.py", "import appliance.clock"),
    "light-client": ("client/planted.py", "import sqlmodel"),
    "device": ("client/planted.py", "import appliance.policies.offload"),
    "protected": ("api/planted.py", "import appliance.runtime.processors"),
    "settings": ("runtime/serving/engine.py", "import appliance.settings"),
    "families": ("policies/residency/lru.py", "import appliance.policies.selection"),
    "acyclic": ("domain/errors/inputs.py", "import appliance.domain.names"),
    "rooms": ("runtime/memory/room.py", "import appliance.runtime.residency.groups"),
    "data-path": ("runtime/serving/queue.py", "import appliance.runtime.serving.engine"),
    "residency": ("runtime/residency/groups.py", "import appliance.runtime.residency.loop"),
    "memory": ("runtime/memory/ledger.py", "import appliance.runtime.memory.manager"),
    "store": ("modelstore/stages/graph.py", "import appliance.modelstore.store.store"),
    "onnx": ("modelstore/store/blobs.py", "import onnx"),
    "http": ("api/http/sse.py", "import appliance.api.box"),
}
CONTRACTS = {"layers-new-package": "layers", "pure-indirect": "pure"}


def lint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    options = ["--config", str(ROOT / ".importlinter"), "--no-cache", *arguments]
    return subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_breaks_its_contract(tmp_path: Path, fault: str) -> None:
    """The contract is kept without the fault and broken with it."""
    shutil.copytree(ROOT / "appliance", tmp_path / "appliance", ignore=shutil.ignore_patterns("__pycache__"))
    contract = CONTRACTS.get(fault, fault)
    before = lint(tmp_path, "--contract", contract)
    assert before.returncode == 0, before.stdout

    name, line = FAULTS[fault]
    module = tmp_path / "appliance" / name
    module.parent.mkdir(exist_ok=True)
    with module.open("a") as text:
        text.write(f"\n{line}\n")
    after = lint(tmp_path, "--contract", contract)
    assert after.returncode == 1, after.stdout
    assert "BROKEN" in after.stdout


def test_every_package_is_seen() -> None:
    """A folder without `__init__.py` would be invisible to the contracts (Alembic runs its versions as scripts)."""
    folders = {module.parent for module in (ROOT / "appliance").rglob("*.py")} - {
        ROOT / "appliance/modelstore/store/migrations/versions"
    }
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
