"""kill -9 at random instants amid uploads, imports, deletions and restores: what was acknowledged and is lost (0).

`--instants N` (300): every third one kills a restore, the others a box at work; `--seed N` gives others.
"""

import argparse
import asyncio
import random
import shutil
import tempfile
from pathlib import Path

from appliance import log
from appliance.demo.zoo import toys
from appliance.domain.states import JobState
from tests.modelstore.boxes import parts
from tests.modelstore.test_crashes import archived, check, check_restored, killed_restore, killed_run

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
    done = 0
    while done < options.instants:
        with tempfile.TemporaryDirectory() as folder:
            count = min(LIVES, options.instants - done)
            restores = count // 3
            _restores(Path(folder), chance, restores)
            _lives(Path(folder), chance, count - restores)
            done += count
        print(f"{done} of {options.instants} instants, nothing lost", flush=True)


def _lives(folder: Path, chance: random.Random, count: int) -> None:
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

    for _ in range(count):
        killed_run(state, journal, net, chance.randrange(2**31), chance.uniform(0.0, 1.2))
        asyncio.run(look())
    asyncio.run(finish())


def _restores(folder: Path, chance: random.Random, count: int) -> None:
    archive = archived(folder)
    for _ in range(count):
        state = folder / "restored"
        check_restored(archive, state, killed_restore(archive, state, chance.uniform(0.0, 0.15)))
        shutil.rmtree(state)


if __name__ == "__main__":
    main()
