"""`scripts/reproduce PAPER`: a paper's experiments in virtual time, its claims beside ours."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reproduce.run import PAPERS, reproduce


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 2 for options that do not fit."""
    parser = argparse.ArgumentParser(prog="scripts/reproduce", description=__doc__)
    parser.add_argument("paper", metavar="PAPER", choices=PAPERS, help=", ".join(PAPERS))
    parser.add_argument("--repetitions", type=int, default=10, help="of each run; more take longer (default: 10)")
    parser.add_argument("--reference", action="store_true", help="edge-multiai: also a clairvoyant planner's figures")
    parser.add_argument("--profiles", type=Path, metavar="FILE.csv", help="scrooge: networks as PPipe measured them")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.repetitions < 1:
        parser.error("--repetitions: must be >= 1")
    if chosen.reference and chosen.paper != "edge-multiai":
        parser.error("--reference: goes with edge-multiai")
    if chosen.profiles is not None and chosen.paper != "scrooge":
        parser.error("--profiles: goes with scrooge")
    try:
        reproduce(
            chosen.paper,
            chosen.repetitions,
            reference=chosen.reference,
            as_json=chosen.json,
            profiles=chosen.profiles,
        )
    except (OSError, ValueError) as error:
        print(f"--profiles: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
