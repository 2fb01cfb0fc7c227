"""Killed at any instant: the folder opens whole, nothing acknowledged is lost, and every job ends."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.modelstore.crashes import archived, check_restored, killed_again_and_again, killed_restore

pytestmark = [
    pytest.mark.nightly("a store killed at any instant, again and again"),
    pytest.mark.usefixtures("processes"),
]

KILLS = 10


def test_sigkill_during_restore_leaves_whole_folder_or_none(tmp_path: Path) -> None:
    chance, archive = random.Random(3), archived(tmp_path)
    for number in range(6):
        state = tmp_path / f"state-{number}"
        check_restored(archive, state, killed_restore(archive, state, chance.uniform(0.0, 0.15)))


@pytest.mark.timeout(600)  # about 40 s of processor time; the machine may be busy
@pytest.mark.parametrize("seed", [1])
def test_sigkill_at_any_instant_loses_no_acknowledged_change(tmp_path: Path, seed: int) -> None:
    """Ten lives that end by SIGKILL amid uploads, imports and deletions, or more on a machine so slow that none of them
    came to an import; in the last every job that was accepted ends.
    """

    def lives() -> Iterator[int]:
        for life in itertools.count():
            noted = (tmp_path / "journal").read_text() if life else ""
            if life >= KILLS and "uploaded" in noted and "submitted" in noted:
                return
            yield seed * 1000 + life

    killed_again_and_again(tmp_path, lives(), random.Random(seed))
