"""What a process takes by itself, however many others there are."""

import gc
from pathlib import Path

from appliance.runtime.processors.cpu.heap import trim
from appliance.runtime.processors.cpu.process_memory import memory_of


def own_bytes(*folders: Path) -> int:
    """Pss of this process without what its heap keeps for later, and without files that are not below `folders`: its
    part of the libraries changes with every other process that begins or ends, by megabytes.
    """
    gc.collect()
    trim()
    taken, is_ours = memory_of("Pss_Anon"), False
    with Path("/proc/self/smaps").open() as file:
        for line in file:
            if not line[0].isupper():  # a mapping; what follows is about it
                is_ours = any(f" {folder}/" in line for folder in folders)
            elif is_ours and line.startswith("Pss:"):
                taken += int(line.split()[1]) * 1024
    return taken
