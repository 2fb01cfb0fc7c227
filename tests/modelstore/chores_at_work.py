"""What a box does by itself, without pause until it is killed: `python chores_at_work.py STATE JOURNAL`.

Backups, housekeeping and the history; every one that has ended is noted in the journal. `python chores_at_work.py
restore ARCHIVE STATE` stages a restore as a running box does and says `staged`; `start STATE` opens the folder, which
applies it, and says `open`.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from appliance.domain.backups import RestoreState
from appliance.history.file import HistoryFile
from appliance.history.pieces import HOUR_S, MINUTE_S, STEP_S
from appliance.modelstore.store.backups import Backups
from appliance.modelstore.store.housekeeping import Housekeeping
from appliance.modelstore.store.restoring import Restoring
from appliance.modelstore.store.state_folder import StateFolder
from tests.fakes.waiting import until
from tests.modelstore.boxes import Parts, parts

Note = Callable[..., None]
BACKUPS_KEPT = 2
CHORES = ("sweep uploads", "disk forecast", "forget old jobs", "forget old audit entries", "check the database")
LIFE_H = 1000.0
"""From one life to the next."""
FIRST_S = 1_767_225_600
"""Of the history; each minute has its own number as the value of `memory`."""


async def work(state: Path, journal: Path, lives: int, first: int) -> None:
    """Until killed; after so many lives, and the history goes on with this minute."""
    with journal.open("a") as notes:

        def note(*words: object) -> None:
            print(*words, file=notes, flush=True)

        async with parts(state, runs=False) as box:
            box.clock.let_pass(LIFE_H * lives)
            backups = Backups(state, state / "backups", box.clock, BACKUPS_KEPT)
            await backups.sweep()
            note("open")
            await asyncio.gather(
                _back_up(box, backups, note), _keep_house(box, note), asyncio.to_thread(_record, state, first, note)
            )


async def _back_up(box: Parts, backups: Backups, note: Note) -> None:
    while True:
        box.clock.let_pass(1)
        await backups.nightly()
        newest, *_ = await backups.all()
        note("backup", newest.name)


async def _keep_house(box: Parts, note: Note) -> None:
    house = Housekeeping(box.store, box.uploads, jobs_kept_days=30)
    while True:
        for name in CHORES:
            await house.run(name)
            (status,) = (one for one in house.statuses() if one.name == name)
            assert status.last is not None
            assert status.last.error == "", status
            note("chore", name.replace(" ", "-"))


def _record(state: Path, first: int, note: Note) -> None:
    """A minute of three series at once; every hour is folded when it is over."""
    file = HistoryFile(state / "history.db", days=30, series_max=100)
    for number in range(first, 10**9):
        start = FIRST_S + number * MINUTE_S
        slots = {start + at: {"up": 1.0, "memory": float(number), "p99": 7.0} for at in range(0, MINUTE_S, STEP_S)}
        file.write(slots)
        note("minute", number)
        if (start + MINUTE_S) % HOUR_S == 0:
            file.fold(start + MINUTE_S)


async def stage(archive: Path, state: Path) -> None:
    async with parts(state, runs=False):
        restoring = Restoring(state)

        async def done() -> None:
            """The archive stays."""

        await restoring.begin(archive, done)
        await until(lambda: restoring.now.state is not RestoreState.CHECKING)
        assert restoring.now.state is RestoreState.READY, restoring.now


def main(words: list[str]) -> None:
    match words:
        case ["restore", archive, state]:
            print("begun", flush=True)
            asyncio.run(stage(Path(archive), Path(state)))
            print("staged", flush=True)
        case ["start", state]:
            print("begun", flush=True)
            StateFolder.open(Path(state)).close()
            print("open", flush=True)
        case [state, journal]:
            noted = Path(journal).read_text() if Path(journal).exists() else ""
            asyncio.run(work(Path(state), Path(journal), noted.count("open"), noted.count("minute")))


if __name__ == "__main__":
    main(sys.argv[1:])
