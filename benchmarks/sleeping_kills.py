"""kill -9 of a box at random instants of sleep, wake and reading ahead: unclean starts, wrong answers (0).

`--instants N` (100): half of them with the models in guards; `--seed N` gives others.
"""

import argparse
import tempfile
from pathlib import Path
from random import Random

from tests.e2e.killed_asleep import killed
from tests.e2e.sleeping_box import sleeping_box

NAMES = ("one", "two", "three")


def main() -> None:
    """Print how many instants were survived; the first that was not ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = Random(options.seed)
    with tempfile.TemporaryDirectory() as folder, sleeping_box(Path(folder), NAMES) as box:
        for isolation, count in (("none", -(-options.instants // 2)), ("process", options.instants // 2)):
            box.restart(APPLIANCE_GUARD__ISOLATION=isolation)
            wakes = [killed(box, chance) for _ in range(count)]
            print(f"isolation {isolation}: {count} instants, {sum(wakes)} wakes, all answers right", flush=True)


if __name__ == "__main__":
    main()
