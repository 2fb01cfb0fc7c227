"""Killed amid what a box does by itself: backups, restores that wait for the next start, housekeeping and the history
are the old or the new, and whole.
"""

import random
from pathlib import Path

import pytest

from tests.modelstore.kills import killed_often, killed_restores


@pytest.mark.nightly("takes more than a minute")
@pytest.mark.timeout(1800)
def test_sigkill_during_chores_leaves_backups_and_history_whole(tmp_path: Path) -> None:
    killed_often(tmp_path, random.Random(5), 8)


@pytest.mark.nightly("takes more than a minute")
@pytest.mark.timeout(1800)
def test_sigkill_during_staged_restore_leaves_old_or_restored_state(tmp_path: Path) -> None:
    killed_restores(tmp_path, random.Random(6), 6)
