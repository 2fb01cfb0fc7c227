"""What a guard wrote to its standard error before it ended: why it ended, and on which thread."""

import os
import re
from collections.abc import Sequence

from appliance.runtime.processors.guard.limits import STDERR_BYTES

_CAUSE_CHARACTERS_MAX = 300


class Stderr:
    """A file in memory; a guard can write no other. Its text is the guard's own and believed in nothing but blame."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("stderr", os.MFD_CLOEXEC)

    def text(self) -> str:
        return os.pread(self.descriptor, STDERR_BYTES, 0).decode(errors="replace")

    def close(self) -> None:
        os.close(self.descriptor)


def cause_of_end(text: str) -> str:
    """One line; empty where it says nothing of it."""
    thrown = re.search(r"terminate called[^\n]*(?:\n\s*what\(\):[^\n]*)?", text)
    fatal = re.search(r"Fatal Python error: ([^\n]*)", text)
    return " ".join((thrown[0] if thrown else fatal[1] if fatal else "").split())[:_CAUSE_CHARACTERS_MAX]


def crashed_thread(text: str, threads: Sequence[int]) -> int | None:
    """Which of these threads crashed, as `faulthandler` says by identifier; None: another one, or nobody knows."""
    crashed = re.search(r"Current thread 0x([0-9a-f]+)", text)
    if crashed is None or int(crashed[1], 16) not in threads:
        return None
    return threads.index(int(crashed[1], 16))
