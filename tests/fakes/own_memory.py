"""What a process takes by itself, as imports measure it."""

import gc
from pathlib import Path

from appliance.runtime.processors.cpu import process_memory
from appliance.runtime.processors.cpu.heap import trim


def own_bytes(*folders: Path) -> int:
    """Of this process, without what its heap keeps for later."""
    gc.collect()
    trim()
    return process_memory.own_bytes(*folders)
