"""The distribution for devices: what is in it is enough, and the camera of docs/devices.md runs with nothing else."""

import re
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import cv2
import pytest

from tests.fakes.session_box import session_box
from tests.instances.scenes import scene

ROOT = Path(__file__).parents[2]
ALONE = """
import sys
# Of the environment the packages that the distribution names, with what these need themselves, and nothing else.
sys.path[:] = [{wheel!r}] + [path for path in sys.path if not path.endswith({root!r})]
SERVERS = "fastapi starlette uvicorn onnxruntime onnx sqlmodel sqlalchemy typer".split()
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in SERVERS:
            raise ImportError(name + " is no part of a device")
sys.meta_path.insert(0, Refused())
import appliance
assert appliance.__file__.startswith({wheel!r}), appliance.__file__
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a person builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([ROOT / "scripts" / "bundle", "--device", folder], check=True, capture_output=True)
    (wheel,) = folder.glob("edge_appliance_device-*.whl")
    return wheel


def example() -> str:
    """The camera of the page."""
    block = re.search(r"^```python\n(.*?)^```$", (ROOT / "docs" / "devices.md").read_text(), re.M | re.S)
    assert block is not None
    return block[1]


def test_device_page_camera_example_has_at_most_forty_lines() -> None:
    assert len(example().splitlines()) <= 40


def test_device_package_dependencies_match_those_of_the_box() -> None:
    """One lock tests both. On the box pydantic comes with FastAPI."""
    box = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    device = tomllib.loads((ROOT / "packaging" / "device.toml").read_text())["project"]
    wanted = [*device["dependencies"], *device["optional-dependencies"]["track"]]
    assert [one for one in wanted if one not in box["dependencies"]] == ["pydantic>=2.14,<3"]


@pytest.mark.usefixtures("processes")
def test_device_wheel_contains_no_server_code(wheel: Path) -> None:
    """Only packages that a device uses."""
    with zipfile.ZipFile(wheel) as archive:
        files = [name.split("/") for name in archive.namelist() if name.startswith("appliance/")]
    assert {file[1] for file in files} == set("__init__.py py.typed clock.py client wire domain policies".split())
    assert {file[2] for file in files if file[1] == "policies"} == {"__init__.py", "sending"}


@pytest.mark.usefixtures("ports", "processes")
def test_device_page_camera_example_runs_with_device_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """Against a box; the camera prints what it sees, and ends with Ctrl-C."""
    script = tmp_path / "camera.py"
    script.write_text(ALONE.format(wheel=str(wheel), root=str(ROOT)) + example())
    photo = tmp_path / "photo.png"
    cv2.imwrite(str(photo), scene(1))

    def answer(frame: int, body: bytes) -> dict[str, Any]:
        return {"objects": [{"label": "cat", "score": 0.9, "box": [200.0, 100.0, 300.0, 180.0]}]}

    with session_box(answer) as box:
        command = [sys.executable, "-u", "-P", str(script), box.url, "secret", "street", f"pan:{photo}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as camera:
            assert camera.stdout is not None
            line = camera.stdout.readline()
            camera.send_signal(signal.SIGINT)
            camera.stdout.read()
            assert camera.wait(120) == 0
    assert re.fullmatch(r"\d+: cat 1 at \d+, \d+, \d+, \d+, \d+ ms old\n", line)
    assert box.ended == ["s-1"]
