"""A measuring child that asks to be alone on its processor, and says nothing more."""

import json
import sys
from pathlib import Path

from appliance.clock import pause_s
from appliance.runtime.processors.measuring.alone import ALONE

if __name__ == "__main__":
    order = json.loads(sys.stdin.read())
    used = Path(order["scratch"]).parent / "used"
    print(ALONE, flush=True)
    for _ in range(1000):
        if used.exists():
            sys.exit("others had it meanwhile")
        pause_s(0.01)
    sys.exit("it was left alone to the end")
