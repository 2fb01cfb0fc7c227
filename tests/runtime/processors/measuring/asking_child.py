"""A measuring child that asks to be alone on its processor again and again, until it no longer is."""

import json
import sys
from pathlib import Path

from appliance.clock import pause_s
from appliance.runtime.processors.measuring.alone import ALONE, TIMED

if __name__ == "__main__":
    order = json.loads(sys.stdin.read())
    granted, used = Path(order["granted"]), Path(order["scratch"]).parent / "used"
    for _ in range(100):
        granted.unlink(missing_ok=True)
        print(ALONE, flush=True)
        while not granted.exists():
            pause_s(0.001)
        if used.exists():
            sys.exit("others had it meanwhile")
        pause_s(0.02)
        print(TIMED, flush=True)
    sys.exit("it was left alone to the end")
