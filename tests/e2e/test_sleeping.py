"""Sleeping builds in a real box: whatever happens to their files, their models or the box, no answer is wrong and only
kill -9 ends the process.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx
import pytest

from tests import toys
from tests.e2e.killed_asleep import killed
from tests.e2e.polling import until
from tests.e2e.sleeping_box import MEGABYTES, SleepingBox, sleeping_box, upload

pytestmark = [pytest.mark.nightly("a server whose memory is watched"), pytest.mark.usefixtures("processes", "ports")]

NAMES = ("one", "two", "three")
KILLS = 3


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SleepingBox]:
    with sleeping_box(tmp_path_factory.mktemp("sleeping"), NAMES) as made:
        yield made


@pytest.fixture
def client(box: SleepingBox) -> Iterator[httpx.Client]:
    with box.client() as made:
        yield made


def _is_of(path: Path, size_bytes: int) -> bool:
    """Between the old file and the new one there is none."""
    return path.exists() and path.stat().st_size == size_bytes


def test_weight_files_truncated_by_another_program_are_rebuilt(box: SleepingBox, client: httpx.Client) -> None:
    """Awake or asleep: the program waits, all answers are right, and the box goes on in the same process."""
    for state in ("resident", "asleep"):
        for name in NAMES:
            assert box.ask(client, name).status_code == 200
        build = next(build for build in box.builds(client).values() if build["state"] == state)
        (path,) = box.weights(build["build"])
        size_bytes = path.stat().st_size
        cutting = [sys.executable, "-c", "import os, sys; os.truncate(sys.argv[1], 10)", str(path)]
        with subprocess.Popen(cutting) as other:
            while other.poll() is None:
                for name in NAMES:
                    assert box.ask(client, name).status_code == 200
        assert other.returncode == 0
        for name in NAMES:
            assert box.ask(client, name).status_code == 200
        until(lambda path=path, size=size_bytes: _is_of(path, size), "a new file", 120)  # type: ignore[misc]
        until(lambda path=path: (path.parent / "form.json").exists(), "its form")  # type: ignore[misc]
    assert box.server.process.poll() is None


def test_sleeping_model_deleted_and_imported_again_answers_right(
    box: SleepingBox, client: httpx.Client, tmp_path: Path
) -> None:
    """A sleeping build goes with its model; other content by its name, and then the same content again, answers as
    itself.
    """
    for name in NAMES:
        assert box.ask(client, name).status_code == 200
    name = next(name for name, build in box.builds(client).items() if build["state"] == "asleep")
    with box.server.client() as api:
        for seed in (17, NAMES.index(name)):
            api.delete_model(name)
            assert name not in box.builds(client)
            assert box.ask(client, name).status_code == 404
            upload(box.server, toys.conv_net(tmp_path / "net.onnx", MEGABYTES, seed=seed), name)
            if seed != 17:
                assert box.ask(client, name).status_code == 200
            else:
                with pytest.raises(AssertionError, match=name):
                    box.ask(client, name)
            for other in NAMES:
                if other != name:
                    assert box.ask(client, other).status_code == 200


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_box_killed_around_sleep_and_wake_starts_clean(box: SleepingBox, isolation: str) -> None:
    """During sleeping, waking and reading ahead, in the service and in guards: every start is clean, no answer is
    wrong.
    """
    chance = Random(7)
    box.restart(APPLIANCE_GUARD__ISOLATION=isolation)
    assert sum(killed(box, chance) for _ in range(KILLS)) > 0


def test_builds_never_sleep_with_an_asleep_share_of_zero(box: SleepingBox) -> None:
    """Builds come and go as before there was sleep."""
    box.restart(APPLIANCE_MEMORY__ASLEEP_SHARE="0")
    with box.client() as client:
        for name in NAMES * 3:
            assert box.ask(client, name).status_code == 200
        memory = client.get("/v1/memory").json()
    assert (memory["wakes"], memory["asleep_bytes"]) == (0, 0)
    assert memory["loads"] >= 2 * len(NAMES)
    assert {build["state"] for build in memory["builds"]} <= {"resident", "unloading"}
