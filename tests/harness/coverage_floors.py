"""Compares what the tests cover with the floors of `tests/coverage_floors.txt`.

Shares count lines and branches together, as `coverage report` does. A floor may be raised and never lowered.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.harness.skips import rows

ROOM_FOR_CHANCE = 3.0
"""Percentage points that a room may be above its floor before the report proposes a higher one."""


def measured() -> dict[str, Any]:
    """Return the measured data of this checkout, file by file, as `coverage json` writes it."""
    coverage = [sys.executable, "-m", "coverage"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "coverage.json"
        subprocess.run([*coverage, "json", "--quiet", "-o", str(target)], check=True)
        data: dict[str, Any] = json.loads(target.read_text())
        return data


def shares(files: Mapping[str, Any], rooms: Mapping[str, float]) -> dict[str, float]:
    """Return the covered share of each room in per cent; a file belongs to the room with the longest matching name."""
    covered: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for name, file in files.items():
        room = max((room for room in rooms if name.startswith(room)), key=len, default=None)
        if room is not None:
            summary = file["summary"]
            covered[room] += summary["covered_lines"] + summary["covered_branches"]
            total[room] += summary["num_statements"] + summary["num_branches"]
    return {room: 100 * covered[room] / total[room] if total[room] else 100.0 for room in rooms}


def main() -> int:
    floors = {row[0]: float(row[1]) for row in rows("coverage_floors.txt")}
    below = 0
    for room, share in shares(measured()["files"], floors).items():
        floor = floors[room]
        word = "BELOW" if share < floor else "could be raised" if share > floor + ROOM_FOR_CHANCE else ""
        below += share < floor
        print(f"{room:32} {share:6.2f} %  floor {floor:5.1f}  {word}")
    if below:
        print(f"coverage: {below} rooms are below their floors (tests/coverage_floors.txt)", file=sys.stderr)
    return int(below > 0)


if __name__ == "__main__":
    sys.exit(main())
