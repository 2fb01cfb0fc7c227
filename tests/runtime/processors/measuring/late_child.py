"""A measuring child that is left alone when it no longer waits for that."""

import json
import sys
from pathlib import Path

from appliance.clock import pause_s
from appliance.runtime.processors.measuring.alone import ALONE, TIMED

if __name__ == "__main__":
    granted = Path(json.loads(sys.stdin.read())["granted"])
    print(ALONE, flush=True)
    while not granted.exists():
        pause_s(0.001)
    print(TIMED, flush=True)
    while granted.exists():  # where it is granted still its limit comes
        pause_s(0.01)
    sys.exit("it is granted no more")
