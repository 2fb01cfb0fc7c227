"""scripts/setup makes an environment, notices when it is stale, and says what to do when it cannot."""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("appliance", "locks", "scripts", "pyproject.toml", "README.md", "LICENSE")
NO_INDEX = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_RETRIES": "0",
    "PIP_NO_CACHE_DIR": "1",
}


@pytest.fixture
def checkout(tmp_path: Path, processes: None) -> Path:
    """A copy of what setup needs, in a folder with a space in its path."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    return folder


def run(script: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run from another folder, with nothing in the environment but what is named."""
    home = {"HOME": str(Path.home())}
    return subprocess.run(
        [script, *arguments], cwd="/", env={**home, **(env or {})}, capture_output=True, text=True, check=False
    )


def pretend_environment(checkout: Path, extra: str) -> None:
    """A .venv with this Python and the stamp that setup would have written, but no packages."""
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to(sys.executable)
    version = ".".join(map(str, sys.version_info[:3]))
    locks = [(checkout / f"locks/{name}.txt").read_bytes() for name in ("shared", extra)]
    digest = hashlib.sha256(b"".join(locks)).hexdigest()
    stamp = f"extra {extra}\nroot {checkout}\npython Python {version}\nform 1\n{digest}  -\n"
    (checkout / ".venv/setup-stamp").write_text(stamp)


def test_setup_leaves_a_fresh_environment_alone(checkout: Path) -> None:
    """Every call of scripts/appliance asks: nothing is said, made or begun (15 ms on an idle machine)."""
    pretend_environment(checkout, "cpu")
    before = sorted(path.relative_to(checkout) for path in checkout.rglob("*"))
    done = run(checkout / "scripts/setup", "--quiet", env=NO_INDEX)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.relative_to(checkout) for path in checkout.rglob("*")) == before


def test_setup_for_cpu_takes_the_dev_environment(checkout: Path) -> None:
    """scripts/appliance in a developer's checkout takes the developer's environment."""
    pretend_environment(checkout, "dev")
    assert "ready: .venv (dev)" in run(checkout / "scripts/setup", "cpu").stderr


@pytest.mark.parametrize("change", ["lock", "extra", pytest.param("moved", marks=pytest.mark.nightly("installs anew"))])
def test_setup_tries_to_rebuild_a_stale_environment(checkout: Path, change: str) -> None:
    """A changed lock, another extra and a moved checkout each lead to a new attempt (which fails here: no index)."""
    pretend_environment(checkout, "cpu")
    if change == "lock":
        with (checkout / "locks/cpu.txt").open("a") as lock:
            lock.write("# changed\n")
    elif change == "moved":
        checkout = checkout.rename(checkout.with_name("moved"))
    done = run(checkout / "scripts/setup", "dev" if change == "extra" else "cpu", env=NO_INDEX)
    assert done.returncode == 1
    assert "ready" not in done.stderr
    assert not (checkout / ".venv/setup-stamp").exists()


@pytest.mark.nightly("waits for a network that is not there")
def test_setup_without_network_explains_the_failure(checkout: Path) -> None:
    """Without an index the last lines say so and what to do, and the log is kept."""
    done = run(checkout / "scripts/setup", "cpu", env=NO_INDEX)
    assert done.returncode == 1
    assert "the package index was not reached" in done.stderr
    assert (checkout / ".venv.log").stat().st_size > 0


def test_setup_refuses_a_named_python_that_does_not_fit(checkout: Path) -> None:
    """A named Python that does not do is an error, not a reason to take another."""
    done = run(checkout / "scripts/setup", "cpu", env={"APPLIANCE_PYTHON": "/bin/false"})
    assert done.returncode == 1
    assert "APPLIANCE_PYTHON=/bin/false is no Python 3.11 to 3.14" in done.stderr


def test_setup_with_unknown_argument_names_the_known_ones(checkout: Path) -> None:
    done = run(checkout / "scripts/setup", "rocm")
    assert done.returncode == 2
    assert "'rocm'" in done.stderr
    assert "cuda" in done.stderr


@pytest.mark.nightly("takes more than a minute")
@pytest.mark.usefixtures("package_index")
def test_setup_makes_a_whole_environment_in_a_fresh_checkout(checkout: Path) -> None:
    """From nothing to a running command line, with only what the index serves."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
    done = run(checkout / "scripts/appliance", "--help", env=kept)
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout
    assert run(checkout / "scripts/setup", "--quiet").stderr == ""


@pytest.mark.parametrize(
    ("plain", "other", "chosen"),
    [
        ("", "--enable-optimizations --with-lto", "python3.12"),
        ("", "--enable-optimizations", "python3.12"),
        ("--enable-optimizations --with-lto", "--enable-optimizations --with-lto", "python3"),
        ("--enable-optimizations", "", "python3"),
    ],
)
def test_setup_takes_the_python_built_with_most_optimisations(
    checkout: Path, tmp_path: Path, plain: str, other: str, chosen: str
) -> None:
    """Of equally good ones the first in line. Only those that the test has made are in reach."""
    shell, folder = shutil.which("bash"), tmp_path / "pythons"
    python = shlex.quote(sys.executable)
    folder.mkdir()
    for name, options in (("python3", plain), ("python3.12", other)):
        fake = "import sys, sysconfig; sys.base_prefix = '/elsewhere'; "
        fake += f"sysconfig.get_config_var = lambda name: '{options}'"
        script = f"""#!{shell}
if [ "$1" = -c ]; then exec {python} -c "{fake}
$2"; fi
exec {python} "$@"
"""
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    code = (checkout / "scripts/setup").read_text().replace('main "$@"\n', "find_python\n")
    code = code.replace("$PATH /usr/local/bin /usr/bin; do", "$PATH; do")
    only = subprocess.run(
        [shell or "bash", "-c", code, str(checkout / "scripts/setup")],
        env={"PATH": str(folder), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert only.stdout == str(folder / chosen), only.stderr
