"""One call to a guard: what is asked, until when, and what it may end with."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from appliance.domain.errors import ApplianceError, BadMetadata, LoadFailed, RunCrashed, RunRefused, RunStopped
from appliance.domain.request import Tensors
from appliance.runtime.processors.guard import messages as m

Settle = Callable[[m.Message, Mapping[str, np.ndarray]], Any]
"""Makes the result of what a guard answered; raises m.BadMessage for what no guard of ours would answer."""


@dataclass(eq=False, slots=True)
class Call:
    """From when it is wanted to its result."""

    code: int
    """Of `messages`: RUN, RUN_ROWS, LOAD, UNLOAD, TOKENISE, SLEEP or WAKE."""
    number: int
    fields: tuple[str, ...]
    tensors: Tensors
    result: asyncio.Future[Any]
    settle: Settle
    about: str
    """The build that it is for, by id."""
    until_ns: int
    is_limit_own: bool
    """Whether that is the guard's own limit, and not when the caller gives up."""
    is_stopped: bool = False
    on_time: Callable[[int], None] | None = None
    """Told the nanoseconds that it took in the guard, also where nobody waits for the result."""
    started_ns: int | None = None

    @property
    def is_run(self) -> bool:
        return self.code in (m.RUN, m.RUN_ROWS)

    @property
    def runs_theirs(self) -> bool:
        """Whether the tenant's graph is read or run; giving memory back and bringing it again runs nobody's code."""
        return self.code not in (m.UNLOAD, m.SLEEP, m.WAKE)

    def finish(self, value: Any) -> None:
        """With a result or an exception; nothing where the caller has gone."""
        if self.result.done():
            return
        if isinstance(value, BaseException):
            self.result.set_exception(value)
        else:
            self.result.set_result(value)

    def ended(self, now_ns: int) -> None:
        """The guard works on it no more."""
        if self.on_time is not None and self.started_ns is not None:
            self.on_time(now_ns - self.started_ns)

    def lose(self, reason: str) -> None:
        """Its guard has ended."""
        if self.is_stopped:
            self.finish(self.stopped())
        elif self.code in (m.LOAD, m.WAKE):
            self.finish(LoadFailed(build_id=self.about, reason=f"its process ended: {reason}"))
        else:
            self.finish(RunCrashed(variant_id=self.about, reason=reason))

    def stopped(self) -> ApplianceError:
        """What its caller is told when it was stopped at its limit."""
        reason = "it took longer than it may"
        if self.code in (m.LOAD, m.WAKE):
            return LoadFailed(build_id=self.about, reason=reason)
        return RunStopped(variant_id=self.about, reason=reason)

    def failed(self, kind: str, reason: str) -> ApplianceError:
        """What its caller is told when the guard answers that it failed; `kind` is the class raised there."""
        if self.is_stopped:
            return self.stopped()
        if self.code == m.TOKENISE and kind == BadMetadata.__name__:
            return BadMetadata(reason=reason)
        return RunRefused(variant_id=self.about, reason=f"{kind}: {reason}" if kind else reason)
