"""The unit file, as systemd itself reads it; and what the scripts say to anybody."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.harness.lacking import lacks_tools

pytestmark = pytest.mark.usefixtures("processes")

ROOT = Path(__file__).parents[2]
EXPOSURE_MAX = 2.0
LACKING = lacks_tools({"systemd-analyze": "systemd"})
needs_systemd = pytest.mark.skipif(LACKING is not None, reason=LACKING or "")


@needs_systemd
@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "systemd").glob("*.service")))
def test_service_unit_is_understood_by_systemd(name: str, tmp_path: Path) -> None:
    """systemd tells of an unknown word without failing: so it must say nothing. The program is one that is there."""
    text = (ROOT / "systemd" / name).read_text()
    unit = tmp_path / name
    unit.write_text(re.sub(r"(?m)^(Exec\w+=[-+]*)\S+", r"\1/bin/true", text))
    for other in (ROOT / "systemd").glob("*.service"):
        if other.name != name:
            (tmp_path / other.name).write_text("[Service]\nExecStart=/bin/true\n")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if name in line]
    assert said == []


@needs_systemd
def test_service_unit_exposure_is_within_its_bound() -> None:
    """By systemd's own count, in which 10 is a service that may do anything."""
    order = ["systemd-analyze", "security", "--offline=yes", str(ROOT / "systemd" / "edge-appliance.service")]
    said = subprocess.run(order, capture_output=True, text=True, check=True).stdout
    found = re.search(r"exposure level for \S+: (\d+\.\d)", said)
    assert found is not None
    assert float(found[1]) <= EXPOSURE_MAX


@pytest.mark.parametrize("script", ["install", "uninstall", "bundle", "image"])
def test_script_has_help_and_refuses_unknown_options(script: str) -> None:
    """For any user."""
    nobody = 65534 if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as folder:  # the checkout may be where nobody else may read
        os.chmod(folder, 0o755)
        path = shutil.copy(ROOT / "scripts" / script, folder)
        asked = subprocess.run([path, "--help"], capture_output=True, text=True, check=True, user=nobody)
        refused = subprocess.run([path, "--nonsense"], capture_output=True, check=False, user=nobody)
    assert f"scripts/{script}" in asked.stdout
    assert "Exit status" in asked.stdout
    assert refused.returncode == 2
