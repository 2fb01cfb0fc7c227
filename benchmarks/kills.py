"""kill -9 at random instants amid uploads, imports, deletions, restores, backups, housekeeping and the history: what
was acknowledged and is lost (0).

`--instants N` (300): every third one kills a restore, every fifth a box whose models run in guards, or a guard, the
others a box at work; beside each twenty, ten of its chores, and twelve of restores that are staged and applied.
`--seed N` gives others. Upgrades and rollbacks: `tests/service`.
"""

import argparse
import random
import shutil
import tempfile
from pathlib import Path

from appliance import log
from tests.attacks.killed_box import guarded_box, killed
from tests.modelstore.crashes import archived, check_restored, killed_again_and_again, killed_restore
from tests.modelstore.kills import killed_often, killed_restores

LIVES = 20
"""Kills of one box; then it finishes its jobs, and another one begins."""


def main() -> None:
    """Print how many instants were survived; the first loss ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--instants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    log.configure("error", "console")
    chance = random.Random(options.seed)
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
        print(f"{done} of {options.instants} instants, nothing lost; beside them {more}", flush=True)


def _restores(folder: Path, chance: random.Random, count: int) -> None:
    archive = archived(folder)
    for _ in range(count):
        state = folder / "restored"
        check_restored(archive, state, killed_restore(archive, state, chance.uniform(0.0, 0.15)))
        shutil.rmtree(state)


if __name__ == "__main__":
    main()
