"""The whole corpus of hostile requests, models and archives against a real box: attacks that end otherwise than they
must (0).
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.attacks.boxes import attacked_box
from tests.attacks.corpus import archives, models, requests
from tests.attacks.running import ask, upload


def main() -> None:
    """Print every attack that went wrong, and how long each kind took."""
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder, attacked_box(Path(folder)) as box:
        begin = time.perf_counter()
        wrong += ask(box, requests.REQUESTS)
        print(f"{len(requests.REQUESTS)} requests, {time.perf_counter() - begin:.0f} s", flush=True)
        for kind, files in (("models", models.FILES), ("archives", archives.FILES)):
            begin = time.perf_counter()
            for name in files:
                wrong += upload(box, Path(folder), files, [name])
            print(f"{len(files)} {kind}, {time.perf_counter() - begin:.0f} s", flush=True)
        assert box.adds(), "the good application does not answer"
        assert "request failed" not in box.server.log()
    print("\n".join(wrong))
    print(f"{len(wrong)} attacks ended otherwise than they must")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
