"""What a guard does with what it is told, on its own threads and over real sockets."""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.clock import NS_PER_S, SystemClock
from appliance.domain.errors import RunStopped
from appliance.domain.request import Tensors
from appliance.runtime.processors.guard import answers
from appliance.runtime.processors.guard import messages as m
from appliance.runtime.processors.guard.dispatcher import Dispatcher
from appliance.runtime.processors.guard.inside import ChannelThread, Guard

PATIENCE_NS = 120 * NS_PER_S


class Sessions:
    """A runtime that looks whether it is to stop before its first node."""

    def stop(self) -> Any:
        return SimpleNamespace(terminate=False)

    def run(self, loaded: Any, inputs: Tensors, outputs: Sequence[str] | None, stop: Any = None) -> dict[str, Any]:
        if stop.terminate:
            raise RunStopped(variant_id="b", reason="it took longer than it may")
        return {}


class Lane(ChannelThread):
    """A thread of the test's: where the process would end, it does."""

    def run(self) -> None:
        with suppress(SystemExit):
            super().run()


@pytest.mark.anyio
async def test_stop_that_comes_before_its_run_ends_only_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy guard may take the order to stop before the request."""
    monkeypatch.setattr(os, "_exit", sys.exit)
    guard: Any = Guard.__new__(Guard)
    guard.sessions, guard.builds, guard.ran = Sessions(), {1: None}, 0
    clock, pairs = SystemClock(), [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(4)]
    thread = Lane(guard, pairs[0][1])
    dispatcher = Dispatcher(clock, [ours for ours, _ in pairs], 1 << 20)
    begun: list[int] = []

    def stop_run(_channel: int, sequence: int) -> None:
        thread.stop(sequence)
        begun.append(sequence)
        thread.start()

    def settle(_: m.Message, tensors: Any) -> Any:
        return answers.outputs(tensors, ())

    dispatcher.stop_run = stop_run
    dispatcher.open()
    late = dispatcher.ask(dispatcher.runs, m.RUN, 1, (), {}, settle, "b", PATIENCE_NS, clock.now_ns())
    with pytest.raises(RunStopped):
        await late
    assert begun == [1]
    assert await dispatcher.ask(dispatcher.runs, m.RUN, 1, (), {}, settle, "b", PATIENCE_NS) == {}
    dispatcher.close("the test is over")
    thread.join()
    for _, theirs in pairs:
        theirs.close()
