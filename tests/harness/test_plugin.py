"""Rules of a run, seen from outside: a run of small tests fails where a test breaks a rule, and only there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import asyncio, socket, subprocess, sys, threading
import pytest

kept = []

def test_quiet(): pass

def test_leaves_thread():
    threading.Thread(target=threading.Event().wait, daemon=True, name="forgotten").start()

def test_leaves_socket(): kept.append(socket.socket())

def test_leaves_task():
    async def story(): kept.append(asyncio.ensure_future(asyncio.sleep(3600)))
    asyncio.run(story())

def test_starts_process_unasked(): subprocess.run([sys.executable, "-c", ""])

def test_opens_port_unasked():
    with socket.socket() as one: one.bind(("127.0.0.1", 0))

@pytest.mark.usefixtures("processes")
def test_starts_process(): subprocess.run([sys.executable, "-c", ""])

@pytest.mark.usefixtures("processes")
def test_leaves_process(): kept.append(subprocess.Popen(["sleep", "60"]))

@pytest.mark.usefixtures("ports")
def test_opens_port():
    with socket.socket() as one: one.bind(("127.0.0.1", 0))

def test_skips(): pytest.skip("not listed")

@pytest.mark.usefixtures("package_index")
def test_fetches(): pass

@pytest.mark.usefixtures("package_index")
@pytest.mark.gate("quick")
def test_fetches_quickly(): pass

@pytest.mark.nightly("long")
def test_takes_long(): pass

def test_ends():
    for process in kept:
        if isinstance(process, subprocess.Popen):
            process.kill()
            process.wait()
"""
CONFTEST = """
from tests.conftest import *
from tests.harness import leaks, tasks
leaks.PATIENCE_S = tasks.PATIENCE_S = 0.2
"""


@pytest.fixture
def folder(tmp_path: Path, processes: None) -> Path:
    (tmp_path / "test_small.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gate\n    nightly\n")
    return tmp_path


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


def test_run_fails_each_test_that_breaks_a_rule_and_no_other(folder: Path) -> None:
    ran = run(folder, "--lane", "all")
    reasons = dict(re.findall(r"(?m)^ERROR \S+::(\w+) - (.*)$", ran.stdout))
    assert set(reasons) == {
        "test_leaves_thread",
        "test_leaves_socket",
        "test_leaves_task",
        "test_leaves_process",
        "test_starts_process_unasked",
        "test_opens_port_unasked",
    }, ran.stdout
    assert "`processes`" in ran.stdout
    assert "`ports`" in ran.stdout
    assert "thread forgotten" in ran.stdout
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED


def test_run_fails_for_a_skip_that_is_not_listed(folder: Path) -> None:
    ran = run(folder, "--lane", "all", "-k", "test_skips or test_quiet")
    assert "test_skips: not listed" in ran.stdout
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("lane", "chosen"),
    [
        ("fast", {"test_quiet", "test_ends"}),
        ("gate", {"test_quiet", "test_starts_process", "test_opens_port", "test_fetches_quickly", "test_ends"}),
        ("nightly", {"test_fetches", "test_takes_long"}),
    ],
)
def test_lane_follows_from_resources_and_the_closest_mark(folder: Path, lane: str, chosen: set[str]) -> None:
    ran = run(folder, "--lane", lane, "-k", "not leaves and not unasked and not skips")
    assert set(re.findall(r"(?m)^PASSED \S+::(\w+)$", ran.stdout)) == chosen, ran.stdout
    assert ran.returncode == pytest.ExitCode.OK
