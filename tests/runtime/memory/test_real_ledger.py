"""The ledger against the kernel: what it counts is what the process takes, whatever came, slept, woke and went."""

import json
import subprocess
import sys

from tests.runtime.memory.real_ledger import off

CHANGES = 60


def test_the_ledger_counts_what_the_process_takes() -> None:
    """Within 5 % after each of the changes, builds asleep, awake and gone; `scripts/bench sleeping_ledger` makes a
    thousand. In a process of its own, because a test run's memory is full of other things.
    """
    command = [sys.executable, "-m", "tests.runtime.memory.real_ledger", str(CHANGES), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["ledger"]) == len(found["process"]) == CHANGES
    assert found["wakes"][0] > 0
    assert max(off(found)) < 0.05
