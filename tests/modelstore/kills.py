"""Boxes that are killed amid their work, and what must be there afterwards."""

import asyncio
import datetime
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from appliance.clock import pause_s
from appliance.history.file import HistoryFile
from appliance.history.pieces import MINUTE_S
from appliance.modelstore.store.backup import back_up, restore
from appliance.modelstore.store.backups import Backups
from appliance.modelstore.store.state_folder import StateFolder
from tests.modelstore.boxes import filled, parts, whole_models
from tests.modelstore.chores_at_work import BACKUPS_KEPT, CHORES, FIRST_S, LIFE_H

ROOT = Path(__file__).parents[2]
MODELS = 4
HISTORY_MAX = 26 * 60
"""Minutes that surely have not been thinned."""


def begun(*words: str | Path) -> "subprocess.Popen[bytes]":
    order = [sys.executable, "-m", "tests.modelstore.chores_at_work", *map(str, words)]
    return subprocess.Popen(order, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def notes(journal: Path, *, of_minutes: bool) -> int:
    lines = journal.read_text().splitlines() if journal.exists() else []
    return sum(line.startswith("minute") is of_minutes for line in lines)


def killed_chores(state: Path, journal: Path, count: int, seconds: float) -> None:
    """A life that ends so long after so many backups and chores, and as many minutes of the history, were noted."""
    wanted = {kind: notes(journal, of_minutes=kind) + count for kind in (False, True)}
    process = begun(state, journal)
    try:
        while any(notes(journal, of_minutes=kind) <= least for kind, least in wanted.items()):
            assert process.poll() is None, process.communicate()[1].decode()
            pause_s(0.002)
        pause_s(seconds)
        assert process.poll() is None, process.communicate()[1].decode()
    finally:
        process.kill()
        process.communicate()


def check_chores(state: Path, journal: Path) -> None:
    """What was noted is there, and all that is there is whole."""
    words = [line.split() for line in journal.read_text().splitlines()]
    made = [word[1] for word in words if word[0] == "backup"]
    done = {word[1] for word in words if word[0] == "chore"}
    minutes = sum(word[0] == "minute" for word in words)

    async def story() -> list[str]:
        async with parts(state, runs=False) as box:
            assert await box.store.check() == "ok"
            assert len((await box.store.snapshot()).models) == MODELS
            backups = Backups(state, state / "backups", box.clock, BACKUPS_KEPT)
            await backups.sweep()
            found = [one.name for one in await backups.all()]
            box.clock.let_pass(LIFE_H * sum(word == ["open"] for word in words))
            await backups.nightly()  # so that what a kill left of the old ones goes
            assert len(await backups.all()) <= BACKUPS_KEPT
            return found

    there = asyncio.run(story())
    for name in made[-1:]:  # newer ones may have taken its place, one of them without having been noted
        assert name in there or sum(newer > name for newer in there) >= BACKUPS_KEPT
    there = [path.name for path in (state / "backups").iterdir()]
    for name in there:
        again = state.with_name("again")
        restore(state / "backups" / name, again)  # checked by every hash
        shutil.rmtree(again)

    if done:
        document = json.loads((state / "housekeeping.json").read_text())
        assert {name for name in CHORES if name.replace(" ", "-") in done} <= document.keys()

    file = HistoryFile(state / "history.db", days=30, series_max=100)
    first = max(0, minutes - HISTORY_MAX)
    start, end = (FIRST_S + number * MINUTE_S for number in (first, minutes + 1))
    found = file.read(["memory"], start, end, is_fine=True)["memory"].mean.reshape(-1, 6)
    file.close()
    for number, row in enumerate(found, first):  # whole minutes; the last one may not have been written
        assert set(row.tolist()) == {float(number)} or (number == minutes and np.isnan(row).all()), (number, row)


def killed_often(folder: Path, chance: random.Random, lives: int) -> None:
    """Raises: AssertionError where something noted is lost, or something is not whole."""
    state, journal = folder / "chores", folder / "chores.journal"
    filled(state, MODELS, 100_000)
    for _ in range(lives):
        killed_chores(state, journal, chance.randrange(20), chance.uniform(0.0, 0.1))
        check_chores(state, journal)
    assert {line.split()[0] for line in journal.read_text().splitlines()} == {"open", "backup", "chore", "minute"}


def killed_step(chance: random.Random, longest_s: float, *words: str | Path) -> bool:
    """Kill a step after a while; whether it had ended before."""
    process = begun(*words)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n", process.communicate()[1].decode()
    pause_s(chance.uniform(0.0, longest_s))
    process.kill()
    said, errors = process.communicate()
    assert process.returncode <= 0, errors.decode()
    return bool(said)


def killed_restores(folder: Path, chance: random.Random, rounds: int) -> None:
    """Each is killed while it is checked, and again while starts apply it.

    Raises: AssertionError unless the box is the empty one or the restored one, and restored where that was staged.
    """
    filled(folder / "original", MODELS, 100_000)
    archive = folder / "original.tar"
    back_up(folder / "original", archive, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    for number in range(rounds):
        state = folder / f"restored-{number}"
        StateFolder.open(state).close()
        is_staged = killed_step(chance, 1.5, "restore", archive, state)
        was_marked = (state / "restore" / "ready").exists()
        assert was_marked or not is_staged
        for _ in range(2):
            killed_step(chance, 0.3, "start", state)
        StateFolder.open(state).close()
        assert whole_models(state) == (MODELS if was_marked else 0)
        assert not (state / "restore").exists()
        shutil.rmtree(state)
