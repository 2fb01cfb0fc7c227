"""kill -9 of a box at random instants of all that it does: what was acknowledged and is lost, against none asked.

  work     every third of `--instants` kills a restore, every fifth a box whose models run in guards, or a guard, the
           others a box at work; beside each twenty, ten of its chores, and twelve of restores that are staged and
           applied
  asleep   instants of sleep, wake and reading ahead, half of them with the models in guards: unclean starts, wrong
           answers

`--seed N` gives other instants. Upgrades and rollbacks: `tests/service`.
"""

import random
import shutil
import tempfile
from pathlib import Path

from appliance import log
from benchmarks import _results as results
from tests.attacks.killed_box import guarded_box, killed
from tests.e2e import killed_asleep
from tests.e2e.sleeping_box import sleeping_box
from tests.modelstore.crashes import archived, check_restored, killed_again_and_again, killed_restore
from tests.modelstore.kills import killed_often, killed_restores

LIVES = 20
"""Kills of one box; then it finishes its jobs, and another one begins."""


def main() -> None:
    """Tell how many instants were survived; the first loss ends it."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", choices=("work", "asleep"), default="work")
    parser.add_argument("--instants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = results.options(parser)
    chance = random.Random(options.seed)
    if options.part == "asleep":
        _asleep(options.instants, chance)
        return
    log.configure("error", "console")
    done = more = 0
    while done < options.instants:
        with tempfile.TemporaryDirectory() as folder:
            count = min(LIVES, options.instants - done)
            restores, guarded = count // 3, count // 5
            _restores(Path(folder), chance, restores)
            with guarded_box(Path(folder) / "guarded") as (server, keys):
                for _ in range(guarded):
                    killed(server, keys, chance)
            seeds = (chance.randrange(2**31) for _ in range(count - restores - guarded))
            killed_again_and_again(Path(folder), seeds, chance)
            done += count
            chores = Path(folder) / "chores"
            chores.mkdir()
            killed_often(chores, chance, count // 2)
            killed_restores(chores, chance, count // 5)
            more += count // 2 + 3 * (count // 5)
        results.row("survived", instants=done, of=options.instants, chores_and_staged_restores=more)


def _asleep(instants: int, chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder, sleeping_box(Path(folder), ("one", "two", "three")) as box:
        for isolation, count in (("none", -(-instants // 2)), ("process", instants // 2)):
            box.restart(APPLIANCE_GUARD__ISOLATION=isolation)
            wakes = [killed_asleep.killed(box, chance) for _ in range(count)]
            results.row(f"isolation {isolation}: all answers right", instants=count, wakes=sum(wakes))


def _restores(folder: Path, chance: random.Random, count: int) -> None:
    archive = archived(folder)
    for _ in range(count):
        state = folder / "restored"
        check_restored(archive, state, killed_restore(archive, state, chance.uniform(0.0, 0.15)))
        shutil.rmtree(state)


if __name__ == "__main__":
    main()
