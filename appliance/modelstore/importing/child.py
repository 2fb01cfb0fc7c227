"""Runs each stage of an import in a child process with limits, and turns whatever happens to it into a result or a
typed error.

The service process never imports onnx and never parses an uploaded file: a fork server that has imported the stages
begins a child, which gets an order and answers in JSON lines. The child has its own process group, a scrubbed
environment and a private scratch folder, and dies with us.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NotRequired, TypedDict, Unpack, overload

from appliance.child import Ended, run_child
from appliance.confinement.limits import ChildLimits
from appliance.domain.errors import ERRORS, ApplianceError, BadArchive, BadInput, BadModel
from appliance.domain.wording import crashed
from appliance.forkserver import ForkServer, begin_child
from appliance.modelstore.orders import (
    ORDERS,
    CutMade,
    CutOrder,
    Dissected,
    DissectOrder,
    Evaluated,
    EvaluateOrder,
    Inspection,
    InspectOrder,
    Made,
    MakeOrder,
    Reviewed,
    ReviewOrder,
    TrialOrder,
    Tried,
    Unpacked,
    UnpackOrder,
    from_json,
    paths_of,
    to_json,
)
from appliance.modelstore.sandbox import memory_reason

__all__ = ["ChildLimits", "OnProgress", "Stages"]

OnProgress = Callable[[float, str], None]
"""Called on the event loop with a share in 0..1 and a phrase."""


class How(TypedDict):
    """How a stage is run."""

    limits: ChildLimits
    on_progress: NotRequired[OnProgress | None]
    scratch: NotRequired[Path | None]
    """Where the child's working folder is made, and removed again."""


STAGES_PROGRAM = "appliance.modelstore.stages.program"
IDLE_S = 30.0


class Stages:
    """Begins a process for each stage. The fork server runs while stages do, and a while longer."""

    def __init__(self, program: str = STAGES_PROGRAM, idle_s: float = IDLE_S) -> None:
        """`program`: the module that has the stages; `idle_s`: how long the fork server outlives the last of them."""
        self._server = ForkServer(program)
        self._idle_s = idle_s
        self._running = 0
        self._closing: asyncio.TimerHandle | None = None

    @overload
    async def run(self, order: UnpackOrder, **how: Unpack[How]) -> Unpacked: ...
    @overload
    async def run(self, order: InspectOrder, **how: Unpack[How]) -> Inspection: ...
    @overload
    async def run(self, order: MakeOrder, **how: Unpack[How]) -> Made: ...
    @overload
    async def run(self, order: ReviewOrder, **how: Unpack[How]) -> Reviewed: ...
    @overload
    async def run(self, order: EvaluateOrder, **how: Unpack[How]) -> Evaluated: ...
    @overload
    async def run(self, order: TrialOrder, **how: Unpack[How]) -> Tried: ...
    @overload
    async def run(self, order: DissectOrder, **how: Unpack[How]) -> Dissected: ...
    @overload
    async def run(self, order: CutOrder, **how: Unpack[How]) -> CutMade: ...
    async def run(self, order: Any, **how: Unpack[How]) -> Any:
        """Carry out an order of `modelstore.orders` in a child; the answer is the dataclass that belongs to it.

        Raises: BadModel, BadArchive, BadMetadata, BadMedia, StorageFull as the stage did; BadModel (BadArchive while
        unpacking) with a plain reason when it crashed, was killed or went over a limit. Cancelling kills the child and
        all it started.
        """
        stage, gives = next((name, gives) for name, (takes, gives) in ORDERS.items() if isinstance(order, takes))
        folder = tempfile.mkdtemp(prefix=f"{stage}-", dir=how.get("scratch"))
        try:
            with self._kept():
                child = _Child(stage, how["limits"], how.get("on_progress"))
                result = await child.run(self._server, await asyncio.to_thread(to_json, order), folder)
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))
        try:
            answer: Any = from_json(gives, result)
            _check_confined(paths_of(answer), paths_of(order))
        except ValueError:  # pydantic's, too
            raise _refusal(stage, BROKEN) from None
        return answer

    @property
    def cpu_s(self) -> float:
        """Processor time that the fork server has taken; 0 while there is none."""
        return self._server.cpu_s()

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """The fork server stays meanwhile."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0:
                self._closing = asyncio.get_running_loop().call_later(self._idle_s, self.close)

    def close(self) -> None:
        """End the fork server, and with it all stages. The next one begins another."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self._server.close()


def _check_confined(given: Iterable[str], allowed: Iterable[str]) -> None:
    """Raises: ValueError unless every path is one of the order's or lies in its target: a child that was taken over
    could name any file of ours.
    """
    roots = [os.path.realpath(path) for path in allowed]
    for path in map(os.path.realpath, given):
        if not any(path == root or path.startswith(root + os.sep) for root in roots):
            raise ValueError(path)


class _Child:
    """One child process from its start to its answer."""

    def __init__(self, stage: str, limits: ChildLimits, on_progress: OnProgress | None) -> None:
        self.stage = stage
        self.limits = limits
        self.on_progress = on_progress
        self.answer: dict[str, Any] | None = None

    async def run(self, server: ForkServer, arguments: Mapping[str, Any], folder: str) -> dict[str, Any]:
        limits = {name: getattr(self.limits, name) for name in self.limits.__dataclass_fields__}
        order = await asyncio.to_thread(lambda: json.dumps({"order": arguments, "limits": limits}).encode())
        begin = partial(begin_child, server, {"stage": self.stage, "folder": folder})
        try:
            ended = await run_child(begin, order, wall_s=self.limits.wall_s, on_line=self._take)
        except TimeoutError:
            raise _refusal(self.stage, f"took longer than {self.limits.wall_s:.0f} s") from None
        except ValueError:  # a line beyond the limit, or no JSON: the child no longer runs our program
            raise _refusal(self.stage, BROKEN) from None
        return self._result(ended, folder)

    def _take(self, line: bytes) -> None:
        """Raises: ValueError for what is no message of ours."""
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError(message)
        if "progress" not in message:
            self.answer = message
        elif self.on_progress is not None:
            self.on_progress(min(1.0, max(0.0, float(message["progress"]))), str(message.get("message", ""))[:200])

    def _result(self, ended: Ended, folder: str) -> dict[str, Any]:
        answer = self.answer or {}
        if "error" in answer:
            error = _typed(answer["error"]) or _refusal(self.stage, BROKEN)
            if isinstance(error, BadInput):
                error.reason = _told(error.reason, folder)
            raise error
        result = answer.get("result")
        if isinstance(result, dict):
            return result
        raise _refusal(self.stage, self._cause(ended))

    def _cause(self, ended: Ended) -> str:
        """Why a child ended without an answer, for the tenant."""
        tail, status = ended.stderr, ended.status
        if "bad_alloc" in tail or "MemoryError" in tail:
            return memory_reason(self.limits)
        if -status == signal.SIGXCPU:
            return f"took more than {self.limits.cpu_s} s of processor time"
        if -status == signal.SIGKILL:
            return "was killed, most likely because the box ran out of memory"
        if status < 0 and self.stage == "unpack":
            return f"ended its process (signal {-status}): pack it again, as a tar or zip"
        if status < 0:
            return f"ended its process: {crashed(-status)}"
        last = next((line for line in reversed(tail.splitlines()) if line.strip()), "")
        return f"ended without an answer: {last[:300]}"


def _told(reason: str, folder: str) -> str:
    """A reason for the tenant: it may quote the file, so it becomes one line that a terminal can show, and libraries
    name paths, of which the box's own part is nobody's business.
    """
    text = re.sub(re.escape(os.path.dirname(folder)) + r"[^\s'\"]*/", "", reason)
    return "".join(sign if sign.isprintable() else " " for sign in text)[:REASON_MAX]


def _refusal(stage: str, cause: str) -> BadInput:
    """The error of a stage that could not speak for itself."""
    error = BadArchive if stage == "unpack" else BadModel
    return error(reason=f"{_DOING.get(stage, stage)} the file {cause}")


REASON_MAX = 1000
BROKEN = "broke the process that looked at it"
_DOING = {
    "unpack": "unpacking",
    "inspect": "inspecting",
    "make": "converting",
    "review": "reviewing",
    "evaluate": "evaluating",
    "trial": "trying",
    "dissect": "dissecting",
    "cut": "cutting",
}


def _typed(error: Any) -> ApplianceError | None:
    """The error that the child raised, or None when it names none of ours: the child may have been taken over."""
    try:
        made = ERRORS[error["type"]](**error["facts"])
        str(made)  # facts of the wrong type show here, not in a log line later
        return made
    except (TypeError, KeyError, AttributeError, ValueError):
        return None
