"""`scripts/reproduce PAPER`: a paper's experiments in virtual time, its claims beside ours."""

import argparse
import sys
from pathlib import Path

from reproduce.run import PAPERS, reproduce


def main() -> int:
    """Return the exit status: 2 for options that do not fit."""
    parser = argparse.ArgumentParser(prog="scripts/reproduce", description=__doc__)
    parser.add_argument("paper", metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("--repetitions", type=int, default=10, help="of each run; more take longer (default: 10)")
    parser.add_argument("--reference", action="store_true", help="edge-multiai: also a clairvoyant planner's figures")
    parser.add_argument("--profiles", type=Path, metavar="FILE.csv", help="scrooge: networks as PPipe measured them")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    chosen = parser.parse_args()
    try:
        reproduce(
            chosen.paper,
            chosen.repetitions,
            reference=chosen.reference,
            as_json=chosen.json,
            profiles=chosen.profiles,
        )
    except OSError as error:
        print(f"--profiles: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
