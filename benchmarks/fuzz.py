"""Calls generated from the OpenAPI document with stateful links, as four roles: wrong answers (0) of 20,000 calls.

Wrong is a 500 other than `run-crashed`, a status or content type that the document does not name, or a body or header
that is not as it says. `--calls N` and `--seed N` change the run; each role gets a fresh box and, in rounds with other
seeds, a quarter of the calls.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.attacks.boxes import ROLES, attacked_box
from tests.attacks.fuzz import fuzz

EXAMPLES = 40
"""Generated calls for each operation and phase in a round."""
ROUND_S = 600


def main() -> None:
    """Print calls and statuses of each role, and every kind of wrong answer once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong: dict[str, str] = {}
    total = 0
    for role in ROLES:
        statuses: Counter[str] = Counter()
        seed = options.seed
        while statuses.total() < options.calls / len(ROLES):
            with tempfile.TemporaryDirectory() as folder, attacked_box(Path(folder)) as box:
                found = fuzz(box.server.url, box.keys[role], examples=EXAMPLES, seconds=ROUND_S, seed=seed)
                statuses += found.statuses
                wrong |= {one.partition("\n")[0]: one for one in found.wrong}
                assert box.server.process.poll() is None, "the box is dead"
            seed += 1
        total += statuses.total()
        print(f"{role}: {statuses.total()} calls, {dict(sorted(statuses.items()))}", flush=True)
    for one in wrong.values():
        print(f"\n{one}")
    print(f"\n{total} calls, {len(wrong)} kinds of wrong answers")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
