"""The planners, by family: `scripts/bench planners [FAMILY [its options]]`; all of them without a name.

A family's benchmark is `planners_FAMILY.py` beside this file.
"""

import importlib
import sys
from pathlib import Path

PREFIX = "planners_"


def main() -> None:
    """Run the family that is named, or all."""
    families = sorted(path.stem.removeprefix(PREFIX) for path in Path(__file__).parent.glob(f"{PREFIX}*.py"))
    named = sys.argv[1:2] if sys.argv[1:] and not sys.argv[1].startswith("-") else families
    options = sys.argv[2:] if named is not families else sys.argv[1:]
    for family in named:
        if family not in families:
            sys.exit(f"planners: no family '{family}', only {', '.join(families)}")
        print(f"# {family}\n")
        sys.argv[1:] = options
        importlib.import_module(f"benchmarks.{PREFIX}{family}").main()


if __name__ == "__main__":
    main()
