"""The SDK of devices at 640 × 480 with 6 boxes, every 6th frame sent: processor time a frame, memory, import.

A process of its own with nothing but the SDK, 30 frames a second, against a box on the same machine that answers with
six boxes. Processor time is that of the whole process: tracking, coding, sending, the thread of the sockets. Memory is
Pss at the end, with OpenCV, less the photo that the frames are cut from. Asked: ≤ 3 ms; ≤ 60 MB; ≤ 0.8 s.

Pages of files that other processes have, too, count by their share: on a machine where more than the benchmark's own
box runs Python, Pss is smaller. `alone_pss_mb` takes what is shared as shared with that box alone; `anonymous_mb` is of
nobody else, and what is left stands by its files.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from appliance.wire.stream import PlanMessage
from tests.fakes.session_box import session_box
from tests.instances.pictures import scene, things

CHILD = r"""
import json, sys, time
began, began_cpu = time.perf_counter(), time.process_time()
from appliance.client.device import Box, Device, Latency
imported_s, imported_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
import numpy as np
url, path, count, fps = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])

def kilobytes(field):
    return next(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith(field))

def files():
    found, name = {}, ""
    for line in open("/proc/self/smaps"):
        words = line.split()
        if not words[0].endswith(":"):
            name = words[5].rpartition("/")[2] if len(words) > 5 and words[5].startswith("/") else ""
        elif words[0] in ("Pss:", "Anonymous:") and name:
            found[name] = found.get(name, 0) + int(words[1]) * 1.024 * (1 if words[0] == "Pss:" else -1)
    return sorted(((kilo / 1000, name) for name, kilo in found.items()), reverse=True)

photo = np.load(path)
room = np.array([photo.shape[1] - 640, photo.shape[0] - 480])
tracked = 0
with Device(Box(url), "street", fps=fps, promise=Latency(1000.0, fps / 6)) as device:
    for number in range(count):
        if number == count // 4:  # the first result and all that is made once are past
            spent, begun = time.process_time(), number
        at = np.array([7, 4]) * number % (2 * room)
        x, y = np.where(at <= room, at, 2 * room - at)
        tracked += len(device.see(photo[y : y + 480, x : x + 640]).objects)
        time.sleep(1 / fps)
    spent = time.process_time() - spent
    print(json.dumps({
        "cpu_ms": 1000 * spent / (count - begun), "sent": device.counts.sent,
        "import_s": imported_s, "import_cpu_s": imported_cpu_s,
        "boxes": tracked / count, "pss_mb": (kilobytes("Pss:") * 1024 - photo.nbytes) / 1e6,
        "rss_mb": kilobytes("Rss:") * 1024 / 1e6,
        "anonymous_mb": (kilobytes("Anonymous:") * 1024 - photo.nbytes) / 1e6,
        "alone_pss_mb": ((kilobytes("Private_Clean:") + kilobytes("Private_Dirty:")
            + (kilobytes("Shared_Clean:") + kilobytes("Shared_Dirty:")) / 2) * 1024 - photo.nbytes) / 1e6,
        "files": files()[:8],
    }))
"""


def main() -> None:
    """Print a line a round, and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--fps", type=float, default=30.0)
    options = parser.parse_args()
    boxes = things(2, 6, 640, 480).tolist()

    def answer(frame: int, body: bytes) -> dict[str, Any]:
        return {"objects": [{"label": "thing", "score": 0.9, "box": box} for box in boxes]}

    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        photo = Path(folder) / "photo.npy"
        np.save(photo, scene(1))
        for _ in range(options.rounds):
            plan = PlanMessage(number=1, variant="a-320", size=320, quality=75, interval=6)
            with session_box(answer, plan=plan, delay_s=0.03) as box:
                arguments = [box.url, str(photo), str(options.frames), str(options.fps)]
                done = subprocess.run(
                    [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True, check=True
                )
            rounds.append(json.loads(done.stdout))
            files = ", ".join(f"{name} {mb:.1f}" for mb, name in rounds[-1].pop("files"))
            print({name: round(value, 3) for name, value in rounds[-1].items()})
            print(f"  Pss of files, MB: {files}")
    for name, asked in (("cpu_ms", 3.0), ("pss_mb", 60.0), ("import_s", 0.8), ("import_cpu_s", 0.8)):
        print(f"{name}: median {np.median([one[name] for one in rounds]):.2f} (asked ≤ {asked})")


if __name__ == "__main__":
    main()
