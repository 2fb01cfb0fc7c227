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
    while not used.exists():  # where it is left alone to the end its limit comes
        pause_s(0.01)
    sys.exit("others had it meanwhile")
