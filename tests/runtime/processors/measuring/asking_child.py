"""A measuring child that asks to be alone on its processor again and again, until it no longer is.

As every child it waits for that for a while only: the last grant may be over before it is noticed.
"""

import json
import sys
from pathlib import Path

from appliance.clock import NS_PER_S, SystemClock, pause_s
from appliance.runtime.processors.measuring.alone import ALONE, TIMED

CLOCK = SystemClock()

if __name__ == "__main__":
    order = json.loads(sys.stdin.read())
    granted, used = Path(order["granted"]), Path(order["scratch"]).parent / "used"
    for _ in range(100):
        granted.unlink(missing_ok=True)
        print(ALONE, flush=True)
        until_ns = CLOCK.now_ns() + 20 * NS_PER_S
        while not granted.exists() and CLOCK.now_ns() < until_ns:
            pause_s(0.001)
        if used.exists():
            sys.exit("others had it meanwhile")
        pause_s(0.02)
        print(TIMED, flush=True)
    sys.exit("it was left alone to the end")
