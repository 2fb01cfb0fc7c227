"""A 200 MB upload in pieces and in one PATCH: growth of the service process while it comes in.

Asked: at most 32 MB. The largest Pss seen while uploading, above the one before.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import _subjects as subjects

SIZE = 200_000_000
PIECE = 1 << 20


def main() -> None:
    """Print the growth."""
    with tempfile.TemporaryDirectory() as folder, subjects.box(Path(folder) / "state") as box, box.http() as http:
        for title, piece in (("one PATCH", SIZE), ("pieces of 8 MB", 8_000_000)):
            upload = http.post("/v1/uploads", json={"length": SIZE}).raise_for_status().json()["id"]
            before = box.pss_mb()
            peak = [before]
            stop = threading.Event()
            watcher = threading.Thread(target=_watch, args=(box, peak, stop))
            watcher.start()
            start = time.perf_counter()
            for offset in range(0, SIZE, piece):
                length = min(piece, SIZE - offset)
                headers = {"Upload-Offset": str(offset), "Content-Length": str(length)}
                http.patch(f"/v1/uploads/{upload}", content=_random(length), headers=headers).raise_for_status()
            elapsed = time.perf_counter() - start
            stop.set()
            watcher.join()
            http.delete(f"/v1/uploads/{upload}").raise_for_status()
            print(f"{title}: {elapsed:.1f} s, growth {max(peak) - before:.1f} MB (asked ≤ 32)")


def _random(length: int) -> Iterator[bytes]:
    block = os.urandom(PIECE)
    for offset in range(0, length, PIECE):
        yield block[: min(PIECE, length - offset)]


def _watch(box: subjects.LiveBox, peak: list[float], stop: threading.Event) -> None:
    while not stop.is_set():
        peak.append(box.pss_mb())
        time.sleep(0.02)


if __name__ == "__main__":
    main()
