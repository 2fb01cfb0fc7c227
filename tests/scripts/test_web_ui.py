"""scripts/web-ui builds the pages where it can, says what to do where it cannot, and knows stale types."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nightly("builds of the pages"), pytest.mark.usefixtures("processes")]

ROOT = Path(__file__).parents[2]
TOOLS = "bash cat cut dirname env find flock grep mktemp readlink rm sed sha256sum sort tail tr xargs".split()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the script needs, without what it makes, in a folder with a space in its path."""
    folder = tmp_path / "a clone"
    shutil.copytree(ROOT / "web-ui", folder / "web-ui", ignore=shutil.ignore_patterns("node_modules"))
    (folder / "scripts").mkdir()
    (folder / "appliance").mkdir()
    shutil.copy(ROOT / "scripts/web-ui", folder / "scripts/web-ui")
    return folder


@pytest.fixture
def without_node(tmp_path: Path) -> dict[str, str]:
    """A machine with no Node, whose Python reaches no package index."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    index = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    return {"PATH": str(tools), "HOME": str(tmp_path), "APPLIANCE_PYTHON": sys.executable, **index}


def run(script: Path, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, *arguments], cwd="/", env=env, capture_output=True, text=True, check=False)


def test_web_ui_build_without_node_and_network_gives_advice(checkout: Path, without_node: dict[str, str]) -> None:
    """No half-built pages are left."""
    done = run(checkout / "scripts/web-ui", env=without_node)
    assert done.returncode == 1
    assert "no Node 20.19 or newer on this machine" in done.stderr
    assert "Install Node 20.19 or newer, then run this again." in done.stderr
    assert not (checkout / "appliance/web_ui").exists()


def test_web_ui_build_in_a_bundle_has_nothing_to_do(checkout: Path, without_node: dict[str, str]) -> None:
    """The pages come with a bundle, their sources do not."""
    shutil.rmtree(checkout / "web-ui")
    assert run(checkout / "scripts/web-ui", env=without_node).returncode == 0


def test_web_ui_build_leaves_fresh_pages_alone(checkout: Path, without_node: dict[str, str]) -> None:
    """As the stamp says; a change of any source is seen."""
    code = (checkout / "scripts/web-ui").read_text()
    (checkout / "appliance/web_ui").mkdir()
    stamp = run_function(checkout, code, "stamp_of")
    (checkout / "appliance/web_ui/stamp").write_text(stamp)
    assert run(checkout / "scripts/web-ui", env=without_node).returncode == 0
    with (checkout / "web-ui/src/texts.ts").open("a") as file:
        file.write("// changed\n")
    assert run(checkout / "scripts/web-ui", env=without_node).returncode == 1


def run_function(checkout: Path, code: str, name: str) -> str:
    """What a function of the script prints."""
    cut = code[: code.index("case ${1:-build} in")] + name + "\n"
    script = checkout / "scripts/part"
    script.write_text(cut)
    return subprocess.run(["bash", script], capture_output=True, text=True, check=True).stdout


def test_web_ui_check_fails_for_stale_types(checkout: Path, without_node: dict[str, str]) -> None:
    """The types name the digest of the document that they are made of."""
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (checkout / ".venv/bin/python").chmod(0o755)
    env = {**without_node, "PYTHONPATH": str(ROOT)}
    assert run(checkout / "scripts/web-ui", "check", env=env).returncode == 0
    types = checkout / "web-ui/src/box/wire.ts"
    types.write_text(types.read_text().replace("Of document ", "Of document 0"))
    done = run(checkout / "scripts/web-ui", "check", env=env)
    assert done.returncode == 1
    assert "scripts/web-ui types" in done.stderr
