"""A `forkserver.Program` that says what it was told; `order["end"]` says how it ends. Run by `test_forkserver`."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from appliance.forkserver import with_streams

READY: list[str] = []


def get_ready(*arguments: str) -> None:
    READY.extend(arguments)


def be_child(order: Any, descriptors: Sequence[int], parent: int) -> None:
    def body(of: int) -> None:
        told = sys.stdin.buffer.read().decode()
        said = {"told": told, "ready": READY, "pid": os.getpid(), "of": of, "server": parent}
        print(json.dumps(said), flush=True)
        print("said aloud", file=sys.stderr, flush=True)
        if order["end"] == "hang":
            signal.pause()
        if order["end"] == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(int(order["end"]))

    with_streams(descriptors, body)
