"""Takes what locks have in common out of them: `locks.py FOLDER`. Called by scripts/lock, which writes them.

`shared.txt` gets every package that all locks pin alike; each lock begins with it, and lists only what it has besides.
"""

import sys
from pathlib import Path

INCLUDED = "-r shared.txt\n"


def blocks(text: str) -> dict[str, str]:
    """Return the pins of a lock with their hashes, and with the comments below them that say why they are there."""
    found: dict[str, str] = {}
    pin = ""
    for line in text.splitlines(keepends=True):
        if line[0] not in " #":
            pin, found[line] = line, ""
        elif line.startswith("    --hash"):
            pin_with_hash = pin + line
            found[pin_with_hash] = found.pop(pin)
            pin = pin_with_hash
        else:
            found[pin] += line
    return found


def main(folder: Path) -> None:
    """Split all locks of a folder."""
    locks = {path: blocks(path.read_text()) for path in sorted(folder.glob("*.txt")) if path.name != "shared.txt"}
    largest = max(locks.values(), key=len)
    shared = [pin for pin in largest if all(pin in lock for lock in locks.values())]
    (folder / "shared.txt").write_text("".join(pin + largest[pin] for pin in shared))
    for path, lock in locks.items():
        path.write_text(INCLUDED + "".join(pin + why for pin, why in lock.items() if pin not in shared))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
