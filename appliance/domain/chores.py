"""Slow chores of the box, minutes to days apart, and what is known of their runs."""

import datetime
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChoreRun:
    """One run that is over."""

    began_at: datetime.datetime
    took_s: float
    error: str = ""
    """Why it failed; empty: it did not."""


@dataclass(frozen=True, slots=True)
class ChoreStatus:
    """A chore, its latest run and its next one."""

    name: str
    every: str
    """In words."""
    last: ChoreRun | None
    next_at: datetime.datetime | None
    """None: the box stops."""
    is_running: bool
