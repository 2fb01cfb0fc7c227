"""The locks install the same packages everywhere, and say where they came from only by hash."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = ROOT / "locks/shared.txt"
LOCKS = sorted(path for path in ROOT.glob("locks/*.txt") if path != SHARED)
PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[^ ]+)(?P<rest>.*)$")


def pins(lock: Path) -> dict[str, set[str]]:
    """Package to its pinned versions (two where a newer Python takes a newer one), with what all locks share."""
    found: dict[str, set[str]] = {}
    for line in [*SHARED.read_text().splitlines(), *lock.read_text().splitlines()]:
        if pin := PIN.match(line):
            found.setdefault(pin["name"], set()).add(pin["version"])
    return found


def project() -> dict[str, list[str]]:
    """Extra to its requirements; the base is under the empty name."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ;]", requirement)[0].lower() for requirement in requirements}


@pytest.mark.parametrize("lock", [*LOCKS, SHARED], ids=lambda lock: lock.stem)
def test_lock_contains_no_address_and_no_path(lock: Path) -> None:
    """A lock holds pins, hashes and the reason for each package, and no option but the shared pins."""
    lines = lock.read_text().splitlines()
    if lock != SHARED:
        assert lines.pop(0) == "-r shared.txt"
    for line in lines:
        assert re.fullmatch(r"[a-z0-9][^/]*==[^/]* \\|    --hash=sha256:[0-9a-f]{64}( \\)?|    #( [^/]*)?", line), line


@pytest.mark.parametrize("lock", [*LOCKS, SHARED], ids=lambda lock: lock.stem)
def test_lock_has_a_hash_for_every_pin(lock: Path) -> None:
    """pip refuses a whole lock when one package in it has no hash."""
    lines = lock.read_text().splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if PIN.match(line):
            assert following.startswith("    --hash=sha256:"), line


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_lock_contains_every_dependency_of_the_project(lock: Path) -> None:
    """A dependency added to pyproject.toml without `scripts/lock` is missing here."""
    extras = {name: ["cpu", name] for name in ("dev", "openvino", "discovery")}.get(lock.stem, [lock.stem])
    wanted = names([requirement for extra in ["", *extras] for requirement in project()[extra]])
    assert wanted | {"hatchling", "editables"} <= pins(lock).keys()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_lock_has_one_onnx_runtime(lock: Path) -> None:
    """Distributions of ONNX Runtime overwrite one another, so no environment may get two. A Jetson has its vendor's."""
    found = [name for name in pins(lock) if name in ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")]
    assert len(found) == (0 if lock.stem == "jetson" else 1)


def test_project_extras_all_have_a_lock() -> None:
    """All but TensorRT, which is on no index."""
    assert {lock.stem for lock in LOCKS} == project().keys() - {"", "tensorrt"}


def test_pins_common_to_all_locks_stand_in_the_shared_lock() -> None:
    lines = [set(filter(PIN.match, lock.read_text().splitlines())) for lock in LOCKS]
    assert set.intersection(*lines) == set()


def test_dev_lock_contains_the_cpu_lock() -> None:
    """A developer's environment serves a request for cpu only because it has the very same packages."""
    dev, cpu = pins(ROOT / "locks/dev.txt"), pins(ROOT / "locks/cpu.txt")
    assert {name: dev.get(name) for name in cpu} == cpu


def test_dependencies_page_names_every_dependency() -> None:
    text = (ROOT / "docs/dependencies.md").read_text()
    wanted = {name for requirements in project().values() for name in names(requirements)}
    assert {name for name in wanted if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)} == set()
