"""The wheel of the box: installed in an environment that has nothing else, it answers over REST and shows its pages."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.e2e.polling import until

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.nightly("installs the box and all its packages"),
    pytest.mark.usefixtures("ports", "processes", "package_index"),
    pytest.mark.timeout(900),
]
DIGITS = "from pathlib import Path; from appliance.demo.zoo.toys import digits; digits(Path('digits'))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `scripts/bundle --wheel` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([ROOT / "scripts" / "bundle", "--wheel", folder], check=True, capture_output=True)
    (built,) = folder.glob("edge_appliance-*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cpu]"]
    subprocess.run(install, check=True, env=_plain(folder))
    return folder / "bin"


def _plain(home: Path) -> dict[str, str]:
    """Return an environment of a stranger: without this checkout, and with a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("APPLIANCE_", "PYTHON", "XDG_"))}
    return {**kept, "HOME": str(home)}


@contextmanager
def _serving(command: list[str], folder: Path) -> Iterator[str]:
    """Run a box in `folder`, and yield its address."""
    address = folder / "state" / "address"
    with (
        (folder / "box.log").open("w") as log,
        subprocess.Popen(
            [*command, "serve", "--state", "state", "--port", "0"],
            cwd=folder,
            env=_plain(folder),
            stdout=log,
            stderr=log,
        ) as box,
    ):
        try:
            until(lambda: address.exists() or box.poll() is not None, "the box")
            assert box.poll() is None, (folder / "box.log").read_text()
            yield address.read_text().strip()
        finally:
            box.terminate()
            box.wait(60)


def test_wheel_contains_package_and_pages_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"appliance"}
    assert "appliance/web_ui/index.html.br" in names
    assert any(re.fullmatch(r"appliance/modelstore/store/migrations/versions/\d{4}_\w+\.py", name) for name in names)
    assert not [name for name in names if "__pycache__" in name]


def test_installed_wheel_imports_model_and_answers_over_rest_and_in_pages(bare: Path, tmp_path: Path) -> None:
    subprocess.run([bare / "python", "-c", DIGITS], cwd=tmp_path, env=_plain(tmp_path), check=True)
    with _serving([str(bare / "appliance")], tmp_path) as url:
        page = httpx.get(url, headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert page.headers["Content-Type"].startswith("text/html")
        scripts = re.findall(r'<script[^>]* src="([^"]+)"', page.text)
        assert scripts
        assert all(httpx.get(httpx.URL(url).join(script)).status_code == 200 for script in scripts)
        subprocess.run([bare / "appliance", "import", "./digits"], cwd=tmp_path, check=True)
        key = (tmp_path / "state" / "admin.key").read_text().strip()
        answer = httpx.post(
            f"{url}/v1/applications/digits/predict",
            content=(tmp_path / "digits/evaluation/0003.png").read_bytes(),
            headers={"Authorization": f"Bearer {key}", "Content-Type": "image/png"},
        )
    assert answer.status_code == 200, answer.text
    assert answer.json()["labels"][0]["label"] == "3"


def test_pipx_runs_box_from_wheel(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "pipx"], check=True)
    pip = [str(tmp_path / "pipx/bin/pip"), "install", "--quiet", "--disable-pip-version-check", "pipx"]
    subprocess.run(pip, check=True, env=_plain(tmp_path))
    command = [str(tmp_path / "pipx/bin/pipx"), "run", "--spec", f"{wheel}[cpu]", "appliance"]
    subprocess.run([*command, "--help"], check=True, capture_output=True, env=_plain(tmp_path))  # pipx installs it
    with _serving(command, tmp_path) as url:
        assert httpx.get(f"{url}/v2/health/ready").json() == {"ready": True}
        assert httpx.get(url, headers={"Accept": "text/html"}).status_code == 200
