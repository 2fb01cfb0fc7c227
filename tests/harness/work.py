"""How much work something is, in calls of Python functions and in objects that are made for answers: the same on every
machine, however busy.
"""

import sys
from asyncio.events import Handle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from pydantic import BaseModel


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
    """Work of the callbacks that this thread's event loop ran."""

    calls_max: int = 0
    """Calls in the callback that made most."""
    shapes_max: int = 0
    """Objects of pydantic's in the callback that made most, but for those that other objects hold."""


@contextmanager
def turns() -> Iterator[Turns]:
    """Count within this block."""
    seen, begin = Turns(), Handle._run.__code__
    makers = {BaseModel.__init__.__code__, BaseModel.model_validate.__func__.__code__}  # type: ignore[attr-defined]
    calls = shapes = 0

    def on_event(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls, shapes
        if event != "call":
            return
        if frame.f_code is begin:
            calls = shapes = 0
            return
        calls += 1
        seen.calls_max = max(seen.calls_max, calls)
        if frame.f_code in makers:
            shapes += 1
            seen.shapes_max = max(seen.shapes_max, shapes)

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield seen
    finally:
        sys.setprofile(before)
