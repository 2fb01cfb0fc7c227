"""Imports and restores that are killed, and what must be there afterwards."""

import asyncio
import datetime
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from appliance.clock import pause_s
from appliance.domain.states import JobState
from appliance.modelstore.store.backup import back_up, restore
from tests import toys
from tests.modelstore.boxes import Parts, filled, parts, whole_models

ROOT = Path(__file__).parents[2]


def killed_run(state: Path, journal: Path, net: Path, seed: int, seconds: float) -> None:
    """Let a box work for a while from the moment it is open, then kill it without warning."""
    known = journal.read_text().count("open") if journal.exists() else 0
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.modelstore.crashing", str(state), str(journal), str(net), str(seed)],
        cwd=ROOT,
        start_new_session=True,
        stderr=subprocess.PIPE,
    )
    try:
        while not journal.exists() or journal.read_text().count("open") == known:
            assert process.poll() is None, process.communicate()[1].decode()
            pause_s(0.01)
        pause_s(seconds)
        assert process.poll() is None, process.communicate()[1].decode()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def acknowledged(journal: Path) -> tuple[dict[str, int], dict[str, str], set[str]]:
    """Offsets by upload, models by job, and models whose deletion was at least asked for."""
    offsets: dict[str, int] = {}
    jobs: dict[str, str] = {}
    deleted: set[str] = set()
    for line in journal.read_text().splitlines():
        match line.split():
            case ["created", id]:
                offsets[id] = 0
            case ["uploaded", id, offset]:
                offsets[id] = int(offset)
            case ["submitted", id, model]:
                jobs[id] = model
            case ["submitting", id]:
                offsets.pop(id, None)
            case ["deleting", model]:
                deleted.add(model)
    return offsets, jobs, deleted


async def check(box: Parts, journal: Path) -> None:
    """The store agrees with itself and with what was acknowledged."""
    offsets, jobs, deleted = acknowledged(journal)
    models = {model.id: model for model in (await box.store.snapshot()).models}
    contents = {one.content_sha256 for model in models.values() for one in model.variants if one.servable}
    for sha256 in contents:
        assert box.store.blobs.path(sha256).exists()  # verified by its hash
    assert box.files("blobs") == contents
    assert box.files("quarantine") == set()
    known = {job.id: job for job in await box.store.jobs.page(limit=10_000)}
    unfinished = {id for id, job in known.items() if job.state in (JobState.QUEUED, JobState.RUNNING)}
    assert {path.name for path in (box.store.state_dir / "scratch").iterdir()} <= unfinished
    for id, model in jobs.items():
        assert id in known
        if model not in deleted:
            assert model in models or known[id].state is JobState.FAILED
        if known[id].state is JobState.DONE and model not in deleted:
            assert models[model].variants[0].servable
    for id, offset in offsets.items():
        assert (await box.uploads.upload(id)).offset >= offset


def killed_restore(archive: Path, state: Path, seconds: float) -> bool:
    """Begin to restore, kill it after a while; whether it had acknowledged before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.modelstore.restoring", str(archive), str(state)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n", process.communicate()[1].decode()
    pause_s(seconds)
    process.kill()
    return b"done" in process.communicate()[0]


def archived(folder: Path) -> Path:
    """A backup of a box with some models."""
    archive = folder / "box.tar"
    filled(folder / "original", 8, 500_000)
    back_up(folder / "original", archive, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    return archive


def check_restored(archive: Path, state: Path, acknowledged: bool) -> None:
    """The folder is whole, or not there at all; then it can be restored at once."""
    assert state.exists() or not acknowledged
    if not state.exists():
        restore(archive, state)
    assert whole_models(state) == 8


def killed_again_and_again(folder: Path, seeds: Iterable[int], chance: random.Random) -> Path:
    """A box at work that is killed once for each seed, and then ends every job that was accepted; returns its journal.

    Raises: AssertionError where something acknowledged is lost.
    """
    state, journal, net = folder / "state", folder / "journal", toys.conv_net(folder / "net.onnx", 0.1)

    async def look() -> None:
        async with parts(state, runs=False) as box:
            await check(box, journal)

    async def finish() -> None:
        async with parts(state) as box:
            for job in await box.store.jobs.page(limit=10_000):
                ended = await box.ended(job.id)
                assert ended.state is not JobState.FAILED, ended.error
            await check(box, journal)

    for seed in seeds:
        killed_run(state, journal, net, seed, chance.uniform(0.0, 1.2))
        asyncio.run(look())
    asyncio.run(finish())
    return journal
