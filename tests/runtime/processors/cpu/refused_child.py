"""Run as a program: loads a prepared form with the real processor where the kernel refuses some system calls.

Arguments: the folder of the form, and the names of the calls. Prints JSON: whether it could sleep, and whether it
answered the same after all that it could do.
"""

import asyncio
import ctypes
import json
import sys
from pathlib import Path

import numpy as np

from appliance.confinement.seccomp import Rules, restrict
from appliance.runtime.processors.cpu.session import OnnxProcessor
from tests.fakes.forms import prepared_form

IMAGE = {"image": np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)}
_NO_NEW_PRIVILEGES = 38


async def tell(folder: Path) -> dict[str, bool]:
    """What the program prints."""
    form = prepared_form("net", folder)
    processor = OnnxProcessor("cpu", 1, 1, 1)
    handle = await processor.load(form)
    expected = (await processor.run(handle, IMAGE, None))["probabilities"]
    can_sleep = processor.can_sleep(handle)
    if can_sleep:
        await processor.sleep(handle)
        assert processor.wake_ns(handle) > 0
        await processor.read_ahead(handle)
        await processor.wake(handle)
    found = (await processor.run(handle, IMAGE, None))["probabilities"]
    await processor.unload(handle)
    processor.close()
    return {"sleeps": can_sleep, "same": bool((found == expected).all())}


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    is_restricted = restrict(Rules(others=True, named=tuple(sys.argv[2:]), conditional=()))
    print(json.dumps({**asyncio.run(tell(Path(sys.argv[1]))), "restricted": is_restricted}))
