"""The container image: what can be seen of it without building it, and the box as it runs in there."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from appliance.clock import NS_PER_S, SystemClock, pause_s
from tests.harness.lacking import lacks_namespaces, skip_if

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "systemd" / "Containerfile").read_text().replace("\\\n", " ")
CLOCK = SystemClock()
PATIENCE_S = 200
INSIDE = """
set -e
mount --make-rprivate /
mount --bind {state} {state}
mount -t tmpfs tmpfs /run
mkdir /run/box /run/venv
mount --bind -o ro {box} /run/box
mount --bind -o ro {venv} /run/venv
mount -o remount,bind,ro /
export PYTHONPATH=/run/box
exec setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --no-new-privs \\
    /run/venv/bin/python -P -m appliance serve --state {state} --port 0
"""
"""The box and its packages are where any user may read them, wherever the checkout lies."""


def instructions(word: str) -> list[str]:
    """Of the last stage."""
    return re.findall(rf"(?m)^{word} (.*)$", RECIPE[RECIPE.rindex("\nFROM") :])


def test_container_image_runs_unprivileged_with_a_health_check() -> None:
    """Its state is a volume, the port is that of its settings, and the program of its health check is there."""
    assert instructions("USER") == ["edge-appliance"]
    (environment,) = instructions("ENV")
    settings = dict(word.split("=", 1) for word in environment.split())
    assert instructions("VOLUME") == [settings["APPLIANCE_STATE_DIR"]]
    assert instructions("EXPOSE") == [settings["APPLIANCE_HTTP__PORT"]]
    assert settings["APPLIANCE_HTTP__TLS_SELF_SIGNED"] == "true"
    (health,) = instructions("HEALTHCHECK")
    assert f'"{settings["APPLIANCE_STATE_DIR"]}/address"' in health
    assert "/scripts/answers.py" in health
    assert (ROOT / "scripts" / "answers.py").exists()


@pytest.mark.usefixtures("processes")
def test_image_script_without_container_builder_names_the_builders(tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "readlink", "sed"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    done = subprocess.run(
        [ROOT / "scripts" / "image"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "podman, buildah or docker" in done.stderr


@pytest.mark.nightly("a box with a file system of its own")
@pytest.mark.usefixtures("processes", "ports")
def test_box_with_read_only_root_passes_its_health_check() -> None:
    """Without capabilities, as the user nobody, with nothing to write to but its state."""
    skip_if(lacks_namespaces("mount"))
    state = Path(tempfile.mkdtemp())  # folders of pytest's own are for nobody but their owner
    os.chown(state, 65534, 65534)
    paths = {"state": state, "box": ROOT, "venv": sys.prefix}
    script = INSIDE.format(**{name: shlex.quote(str(path)) for name, path in paths.items()})
    order = ["unshare", "--mount", "bash", "-c", script]
    with subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/") as box:
        try:
            check = [sys.executable, "-P", str(ROOT / "scripts" / "answers.py"), "--ready", str(state / "address")]
            end_ns = CLOCK.now_ns() + PATIENCE_S * NS_PER_S
            while subprocess.run(check, capture_output=True, check=False).returncode != 0:
                assert box.poll() is None, box.stdout and box.stdout.read()
                assert CLOCK.now_ns() < end_ns
                pause_s(0.1)
        finally:
            box.terminate()
            box.wait(PATIENCE_S)
            shutil.rmtree(state)
    assert subprocess.run(check, capture_output=True, check=False).returncode == 1
