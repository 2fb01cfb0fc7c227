"""What guards and their fork server take is counted, bounded, and given back."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from appliance.domain.errors import OutOfMemory, RunCrashed
from appliance.runtime.processors import KINDS
from appliance.runtime.processors.cpu.process_memory import memory_of
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.guard.processor import GuardedProcessor
from appliance.tasks.base import TokenOrder
from tests import toys
from tests.attacks.guards import adding, adds, guarding, numbers, wait_for_end
from tests.fakes.forms import prepared_form
from tests.fakes.waiting import until

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.anyio]


def assert_counted(count_bytes: int, pid: int) -> None:
    """What is told of a process is what the kernel counts for it: all that it alone has written to, and a part of what
    others map, too. How large that part is, they decide.
    """
    assert memory_of("Private_Dirty", pid) <= count_bytes <= memory_of("Rss", pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look into a guard")
async def test_memory_of_a_guard_is_counted_as_builds_and_base(processor: GuardedProcessor, tmp_path: Path) -> None:
    """Together what the kernel says: what sessions share and tokenizers are in the base."""
    base_bytes: list[int] = []
    processor.on_base = lambda taken: base_bytes.append(sum(taken.values()))
    build: Any = await processor.load(adding(tmp_path, "t", "own"))
    pid = build.guard.pid
    loaded_bytes, own_bytes = base_bytes[-1], memory_of("Private_Dirty", pid)
    assert_counted(loaded_bytes + build.resident_bytes, pid)
    words = Tokenizer(WordLevel({f"word{number}": number for number in range(50_000)}, unk_token="word0"))
    words.save(str(tmp_path / "large.json"))
    await processor.tokenize(TokenOrder(str(tmp_path / "large.json"), ["word7"], 8, False), "b", "t")
    assert memory_of("Private_Dirty", pid) > own_bytes
    assert base_bytes[-1] > loaded_bytes
    assert_counted(base_bytes[-1] + build.resident_bytes, pid)


async def test_memory_of_the_fork_server_is_counted_beside_a_guard(processor: GuardedProcessor, tmp_path: Path) -> None:
    """Its part of the pages that it shares with the guard, whose part is in the guard's base."""
    told: list[int] = []
    processor.on_servers = lambda taken: told.append(sum(taken.values()))
    await processor.load(adding(tmp_path, "t", "own"))
    assert_counted(told[-1], processor.forkserver_pid)
    assert told[-1] >= memory_of("Anonymous", processor.forkserver_pid) // 2, "it shares them with one guard at most"


async def test_memory_of_the_fork_server_is_counted_anew_when_guards_end(
    processor: GuardedProcessor, tmp_path: Path
) -> None:
    """Pages that were shared are its own then; of a fork server that is gone nothing is counted."""
    told: list[int] = []
    processor.on_servers = lambda taken: told.append(sum(taken.values()))
    form = adding(tmp_path, "t", "own")
    build: Any = await processor.load(form)
    server = processor.forkserver_pid
    shared_bytes = memory_of("Shared_Dirty", server)

    async def ended(pid: int, end: Callable[[], object]) -> None:
        watched, count = os.pidfd_open(pid), len(told)
        end()
        wait_for_end(watched)  # the event loop stands still, so that the count comes after
        await until(lambda: len(told) > count)

    (guarded,) = processor.occupied(())
    await ended(build.guard.pid, guarded.end)
    assert memory_of("Shared_Dirty", server) < shared_bytes
    assert_counted(told[-1], server)
    assert told[-1] >= memory_of("Anonymous", server)
    build = await processor.load(form)
    os.kill(server, signal.SIGKILL)
    await ended(build.guard.pid, processor.occupied(())[0].end)
    assert told[-1] == 0


async def test_fork_server_without_guards_ends_where_its_memory_is_needed(
    processor: GuardedProcessor, tmp_path: Path
) -> None:
    """After the last idle guard, and not where a build needs a guard on its kind; the next guard begins another one."""
    told: list[int] = []
    processor.on_servers = lambda taken: told.append(sum(taken.values()))
    form = adding(tmp_path, "t", "own")
    build: Any = await processor.load(form)
    assert (processor.idle_bytes(()), processor.end_idle(())) == (0, False)
    await processor.unload(build)
    server, wanted = processor.forkserver_pid, {"other@cpu@u"}
    assert processor.idle_bytes(()) == processor.idle_bytes(wanted) + told[-1]
    watched = os.pidfd_open(server)
    assert (processor.end_idle(wanted), processor.end_idle(wanted)) == (True, False)
    assert (processor.end_idle(()), processor.forkserver_pid, told[-1]) == (True, 0, 0)
    wait_for_end(watched)
    assert (processor.idle_bytes(()), processor.end_idle(())) == (0, False)
    again: Any = await processor.load(form)
    assert await adds(processor, again)
    assert processor.forkserver_pid not in (0, server)
    assert told[-1] > 0


@pytest.mark.parametrize("limit", ["count", "idle"])
async def test_unused_guard_ends_at_the_process_limit_or_when_idle(tmp_path: Path, limit: str) -> None:
    """For one guard over the limit, the guard unused longest ends and its builds are gone; a guard that holds nothing
    ends by itself, and its user and memory are free again.
    """
    with guarding(tmp_path, processes_max=2, idle_s=0.2 if limit == "idle" else 60) as processor:
        lost: list[str] = []
        base_bytes: list[int] = []
        processor.on_lost, processor.on_base = lost.append, lambda taken: base_bytes.append(sum(taken.values()))
        first = await processor.load(adding(tmp_path, "one", "first"))
        second = await processor.load(adding(tmp_path, "two", "second"))
        if limit == "count":
            await processor.run(first, numbers(1), None)
            third = await processor.load(adding(tmp_path, "three", "third"))
            assert lost == ["second"]
            for handle in (first, third):
                assert await adds(processor, handle)
            with pytest.raises(RunCrashed):
                await processor.run(second, numbers(1), None)
        else:
            for handle in (first, second):
                await processor.unload(handle)
            await until(lambda: not base_bytes[-1])
            assert lost == []


async def test_guards_without_awake_builds_end_to_free_memory(tmp_path: Path) -> None:
    """An empty guard before a guard that holds sleeping builds, which are told to be lost; never a guard that has an
    awake build, or whose tenant wants one.
    """
    with guarding(tmp_path) as processor:
        lost: list[str] = []
        base_bytes: list[int] = []
        processor.on_lost, processor.on_base = lost.append, lambda taken: base_bytes.append(sum(taken.values()))
        handles: dict[str, Any] = {
            tenant: await processor.load(adding(tmp_path, tenant, f"content@cpu@{tenant}"))
            for tenant in ("empty", "awake", "wanted")
        }
        (folder := tmp_path / "form").mkdir()
        assert OnnxSessions(1).prepare(toys.conv_net(tmp_path / "net.onnx", 1), folder)
        form = prepared_form("content@cpu@asleep", folder)
        await processor.sleep(await processor.load(replace(form, guarded_for="asleep")))
        for tenant in ("empty", "wanted"):
            await processor.unload(handles[tenant])
        before_bytes = base_bytes[-1]
        assert [list(one.builds) for one in processor.occupied({"other@cpu@wanted"})] == [["content@cpu@awake"]]
        assert not processor.occupied({"other@cpu@awake"})
        assert processor.idle_bytes(()) > processor.idle_bytes({"other@cpu@wanted", "content@cpu"}) > 0
        assert processor.end_idle({"other@cpu@wanted", "content@cpu"})
        assert (lost, handles["empty"].guard.has_ended) == ([], True)
        assert base_bytes[-1] < before_bytes
        assert processor.end_idle({"other@cpu@wanted"})
        assert lost == ["content@cpu@asleep"]
        assert not processor.end_idle({"other@cpu@wanted"})
        assert processor.idle_bytes({"other@cpu@wanted"}) == 0
        assert await adds(processor, handles["awake"])


async def test_concurrent_loads_start_no_more_guards_than_the_limit(tmp_path: Path) -> None:
    """As when a start brings back what was in memory."""
    with guarding(tmp_path, processes_max=2) as processor:
        lost: list[str] = []
        processor.on_lost = lost.append
        loads = [processor.load(adding(tmp_path, tenant, tenant)) for tenant in ("one", "two", "three", "four")]
        async with asyncio.timeout(240.0):
            await asyncio.gather(*loads)
        assert len(lost) == 2
        await until(lambda: len(psutil.Process(processor.forkserver_pid).children()) == 2)  # killed ones are going

        async def come_back(tenant: str) -> None:
            for number in range(8):
                handle = await processor.load(adding(tmp_path, tenant, f"{tenant} {number}"))
                with suppress(RunCrashed):  # others needed the guard meanwhile
                    await processor.run(handle, numbers(1), None)

        async with asyncio.timeout(240.0):
            await asyncio.gather(*(come_back(tenant) for tenant in ("one", "two", "three", "four")))


async def test_guard_starts_only_after_room_is_made_for_its_memory(processor: GuardedProcessor, tmp_path: Path) -> None:
    """The box is asked before there is a process, by what a guard takes about (`scripts/bench guard` says how much that
    is), and is left when it has been told what this guard takes; where the box refuses, no guard begins, and the next
    load tries again.
    """
    told: list[tuple[object, ...]] = []
    refuses = True

    @asynccontextmanager
    async def room(tenant: str, kind: str, base_bytes: int) -> AsyncIterator[None]:
        told.append(("asked", tenant, kind, base_bytes, processor.forkserver_pid))
        if refuses:
            raise OutOfMemory(
                build_id="b", need_bytes=1, budget_bytes=1, free_bytes=0, can_fit=True, retry_after_s=None
            )
        yield
        told.append(("left", tenant, kind))

    processor.room_to_begin = room
    processor.on_base = lambda taken: told.append(("told", *taken))
    form = adding(tmp_path, "t", "own")
    with pytest.raises(OutOfMemory):
        await processor.load(form)
    assert processor.forkserver_pid == 0
    refuses = False
    build: Any = await processor.load(form)
    asked = ("asked", "t", "cpu", KINDS["cpu"].guard.base_bytes, 0)  # type: ignore[union-attr]
    assert told[:4] == [asked, asked, ("told", ("t", "cpu")), ("left", "t", "cpu")]
    await processor.unload(build)


async def test_guard_and_fork_server_memory_is_told_while_room_is_promised(
    processor: GuardedProcessor, tmp_path: Path
) -> None:
    """The room was for both: no turn of the event loop sees it neither promised nor taken."""
    told: list[str] = []

    @asynccontextmanager
    async def room(tenant: str, kind: str, base_bytes: int) -> AsyncIterator[None]:
        told.append("promised")
        yield
        told.append("left")

    def on_base(taken: object) -> None:
        if "guard" not in told:  # else it has ended
            told.append("guard")
            asyncio.get_running_loop().call_soon(told.append, "next turn")

    processor.room_to_begin = room
    processor.on_base = on_base
    processor.on_servers = lambda taken: told.append("fork server")
    build: Any = await processor.load(adding(tmp_path, "t", "own"))
    assert told[:5] == ["promised", "guard", "fork server", "left", "next turn"]
    await processor.unload(build)
