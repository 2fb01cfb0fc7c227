"""How much work something is, in calls of Python functions: the same on every machine, however busy."""

import sys
from asyncio.events import Handle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls of Python functions `work` makes in this thread."""
    count = 0

    def on_event(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@dataclass(slots=True)
class Turns:
    """Of the callbacks that this thread's event loop ran: the calls in the longest one."""

    calls_max: int = 0


@contextmanager
def turns() -> Iterator[Turns]:
    """Count within this block."""
    seen, begin = Turns(), Handle._run.__code__
    count = 0

    def on_event(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        if event != "call":
            return
        count = 0 if frame.f_code is begin else count + 1
        seen.calls_max = max(seen.calls_max, count)

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield seen
    finally:
        sys.setprofile(before)
