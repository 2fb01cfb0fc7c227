"""kill -9 of a box with guards, or of a guard, amid requests, loads and unloads; more of it: `scripts/bench kills`."""

import random
from pathlib import Path

import pytest

from tests.attacks.killed_box import guarded_box, killed

pytestmark = [
    pytest.mark.nightly("a box killed again and again"),
    pytest.mark.usefixtures("processes", "ports"),
    pytest.mark.timeout(300),
]


def test_box_or_guard_killed_at_random_instants_serves_again(tmp_path: Path) -> None:
    """Five times."""
    chance = random.Random(5)
    with guarded_box(tmp_path) as (server, keys):
        for _ in range(5):
            killed(server, keys, chance)
