"""Signals whose effect a test waits for."""

import os
import signal
from pathlib import Path

from appliance.clock import pause_s


def freeze(pid: int) -> None:
    """Stop a process by SIGSTOP, and return when each of its threads stands: before that, any may still answer."""
    os.kill(pid, signal.SIGSTOP)
    while not all(_state(thread) in "TZX" for thread in Path(f"/proc/{pid}/task").iterdir()):
        pause_s(0.001)


def _state(thread: Path) -> str:
    """Return the letter of a thread's state (proc_pid_stat(5)); X for a thread that has ended."""
    try:
        return (thread / "stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
