"""What an uploaded graph does to whoever runs it, it does to its guard alone."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from appliance.clock import NS_PER_S, SystemClock
from appliance.domain.errors import BadMetadata, LoadFailed, RunCrashed, RunFailed, RunStopped
from appliance.domain.request import Tensors
from appliance.forkserver import ForkServer
from appliance.runtime.processors import KINDS
from appliance.runtime.processors.guard import dispatcher
from appliance.runtime.processors.guard.process import GuardedBuild
from appliance.runtime.processors.guard.processor import GUARD_PROGRAM, GuardedProcessor
from appliance.tasks.base import TokenOrder, TokenRow
from tests import toys
from tests.attacks import killers
from tests.attacks.guards import MIB, adding, adds, form_of, guarding, numbers, wait_for_end
from tests.fakes.waiting import until
from tests.harness.signals import freeze

KILLS_AT_RANDOM = 20
PATIENCE_S = 240.0
pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.anyio]

Kill = tuple[Callable[[Path], Path], Tensors, type[Exception]]
KILLS: dict[str, Kill] = {
    "division": (
        killers.integer_division,
        {"X": np.array([killers.INT32_MIN], np.int32), "Y": np.array([-1], np.int32)},
        RunCrashed,
    ),
    "lstm": (killers.lstm, {"X": np.zeros((1, 0, 3), np.float32)}, RunCrashed),
    "outer product": (killers.outer_product, {"X": np.ones((45_000, 1), np.float32)}, RunFailed),
    "loop": (killers.loop, {"N": np.array([10**12])}, RunStopped),
}


def _words(path: Path) -> Path:
    """A tokenizer of two words."""
    made = Tokenizer(WordLevel({"[UNK]": 0, "hello": 1, "you": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.save(str(path))
    return path


def test_unresponsive_fork_server_is_replaced() -> None:
    """Else each load that needs a guard would wait for ever, in a thread that others need."""
    server = ForkServer(GUARD_PROGRAM, "cpu", answer_s_max=0.1)
    try:
        server.start()
        before = server.pid
        freeze(before)
        with pytest.raises(TimeoutError):
            server.fork({"home": {}}, [])
        server.start()
        assert server.pid not in (0, before)
    finally:
        server.close()


async def test_stopped_guard_ends_and_its_runs_are_answered(processor: GuardedProcessor, tmp_path: Path) -> None:
    """Runs that wait for the guard fail, the other tenant's guard goes on, and another guard takes its place."""
    crashed: list[str] = []
    processor.on_crash = lambda build_id, reason: crashed.append(build_id)
    stopped, going = [await processor.load(adding(tmp_path, tenant, tenant)) for tenant in ("stopped", "going")]
    assert isinstance(stopped, GuardedBuild)
    freeze(stopped.guard.pid)
    run = asyncio.ensure_future(processor.run(stopped, numbers(1.0), None))
    async with asyncio.timeout(PATIENCE_S):
        while not run.done():
            assert await adds(processor, going, 2.0)
            await asyncio.wait([run], timeout=0.1)
    with pytest.raises(RunCrashed, match="was stopped"):
        await run
    assert crashed == []
    again = await processor.load(adding(tmp_path, "stopped", "again"))
    assert await adds(processor, again, 3.0)


@pytest.mark.parametrize("tenant", [None, "hostile"])
async def test_subnormal_numbers_are_flushed_to_zero_in_service_and_guard(
    processor: GuardedProcessor, tmp_path: Path, tenant: str | None
) -> None:
    """On the worker threads of the service and on the lanes of a guard: a product of them would take two hundred times
    as long as of others.
    """
    form = replace(form_of(toys.tiny_add(tmp_path / "add.onnx"), ""), guarded_for=tenant)
    build = await processor.load(form)
    for _ in range(4):  # on any of the threads
        subnormal = {"A": np.full((1, 4), 1e-40, np.float32), "B": np.zeros((1, 4), np.float32)}
        assert (await processor.run(build, subnormal, None))["SUM"].tolist() == [[0.0] * 4]
    await processor.unload(build)


@pytest.mark.parametrize(
    ("name", "run_s_max"),
    [
        *((name, 60.0) for name in KILLS if name != "loop"),
        pytest.param("loop", 5.0, marks=pytest.mark.nightly("waits until time is over")),
    ],
)
async def test_killer_model_harms_its_own_guard_only(processor: GuardedProcessor, tmp_path: Path, name: str) -> None:
    """A typed error for the killer; another tenant's runs in between are answered; the killer tenant's own models come
    back.
    """
    make, inputs, expected = KILLS[name]
    lost: list[str] = []
    processor.on_lost = lost.append
    own = adding(tmp_path, "hostile", "own")
    killer = form_of(make(tmp_path / "killer.onnx"), "hostile")
    quiet = await processor.load(adding(tmp_path, "quiet", "quiet"))
    handle = await processor.load(killer)
    before = await processor.load(own)
    killing = asyncio.ensure_future(processor.run(handle, inputs, None))
    for number in range(20):
        assert await adds(processor, quiet, number)
    with pytest.raises(expected):
        await killing
    if expected is RunCrashed:
        assert sorted(lost) == ["killer", "own"]
        with pytest.raises(RunCrashed):
            await processor.run(before, numbers(1), None)
        before = await processor.load(own)
    assert await adds(processor, before, 2)
    assert await adds(processor, quiet, 3)


async def test_inputs_that_cannot_be_sent_to_a_guard_block_no_other_run(
    processor: GuardedProcessor, tmp_path: Path
) -> None:
    """Their caller gets an error, and the runs behind them are served, more of them than there are channels."""
    build = await processor.load(adding(tmp_path, "t"))
    strange: list[Tensors] = [{"A": [1.0]}, {"A": np.ones((1, 4), np.complex64)}]
    async with asyncio.timeout(PATIENCE_S):
        runs = [processor.run(build, strange[at // 2] if at in (1, 2) else numbers(at), None) for at in range(12)]
        runs += [processor.run(build, strange[at % 2] if at % 3 else numbers(at), None) for at in range(12)]
        ends = await asyncio.gather(*runs, return_exceptions=True)
    assert sum(isinstance(end, RunFailed) for end in ends) == 10
    assert sum(isinstance(end, dict) for end in ends) == 14


@pytest.mark.parametrize(
    "kind", [pytest.param("grows", marks=pytest.mark.nightly("waits until memory is full")), "no tokenizer"]
)
async def test_hostile_tokenizer_harms_its_own_guard_only(
    processor: GuardedProcessor, tmp_path: Path, kind: str
) -> None:
    """Two letters that become gigabytes, or a file that is no tokenizer: a typed error, and other tenants' texts are
    read on meanwhile.
    """
    hostile = killers.tokenizer(tmp_path / "hostile.json") if kind == "grows" else tmp_path / "hostile.json"
    if kind == "no tokenizer":
        hostile.write_text("{}")
    honest = _words(tmp_path / "honest.json")
    crashed: list[str] = []
    processor.on_crash = lambda build_id, reason: crashed.append(build_id)
    attack = asyncio.ensure_future(processor.tokenize(TokenOrder(str(hostile), ["aa"], 8, True), "b", "hostile"))
    for _ in range(5):
        rows = await processor.tokenize(TokenOrder(str(honest), ["hello you", "", "hello"], 1, True), "b", "quiet")
        assert rows == [TokenRow([1], [0], is_cut=True), TokenRow([], []), TokenRow([1], [0])]
    with pytest.raises(RunFailed if kind == "grows" else BadMetadata):
        await attack
    assert crashed == (["b"] if kind == "grows" else []), "the memory was its guard's"
    rows = await processor.tokenize(TokenOrder(str(honest), ["hello"], 8, False), "b", "hostile")
    assert rows == [TokenRow([1], [0])]


@pytest.mark.nightly("waits until time is over")
async def test_tokenizer_time_is_reported_also_when_stopped(processor: GuardedProcessor, tmp_path: Path) -> None:
    took_ns: list[int] = []
    honest = TokenOrder(str(_words(tmp_path / "honest.json")), ["hello"], 8, False)
    await processor.tokenize(honest, "b", "t", took_ns.append)
    assert len(took_ns) == 1
    hostile = TokenOrder(str(killers.tokenizer(tmp_path / "hostile.json")), ["aa"], 8, False)
    with pytest.raises(RunFailed):
        await processor.tokenize(hostile, "b", "t", took_ns.append)
    assert len(took_ns) == 2
    assert all(took_ns)


async def test_guard_folder_keeps_only_recent_tokenizers(processor: GuardedProcessor, tmp_path: Path) -> None:
    """A guard does not keep all that a tenant ever had."""
    for number in range(20):
        path = _words(tmp_path / f"{number}.json")
        await processor.tokenize(TokenOrder(str(path), ["hello"], 8, False), "b", "t")
    assert len(list((tmp_path / "scratch").glob("guard-*/*/*.json"))) <= 9


@pytest.mark.parametrize("run_s_max", [1.0])
async def test_run_past_its_own_deadline_is_no_crash_of_the_build(processor: GuardedProcessor, tmp_path: Path) -> None:
    """A run that took longer than the limit of all runs is a crash."""
    crashed: list[str] = []
    processor.on_crash = lambda build_id, reason: crashed.append(build_id)
    form = form_of(killers.long_node(tmp_path / "long.onnx"), "t")
    inputs = {"S": np.array([4000, 4000])}
    for deadline_ns, blamed in ((SystemClock().now_ns() + NS_PER_S // 20, []), (None, ["long"])):
        handle = await processor.load(form)
        with pytest.raises(RunStopped):
            await processor.run(handle, inputs, None, deadline_ns=deadline_ns)
        assert crashed == blamed


@pytest.mark.parametrize("run_s_max", [1.0])
async def test_run_over_the_time_limit_is_blamed_and_not_its_neighbour(
    processor: GuardedProcessor, tmp_path: Path
) -> None:
    """Not the run beside it that died with the guard."""
    crashed: list[str] = []
    processor.on_crash = lambda build_id, reason: crashed.append(build_id)
    slow = await processor.load(form_of(killers.loop(tmp_path / "slow.onnx"), "t"))
    long = await processor.load(form_of(killers.long_node(tmp_path / "long.onnx"), "t"))
    runs = [
        processor.run(long, {"S": np.array([4000, 4000])}, None),
        processor.run(slow, KILLS["loop"][1], None, deadline_ns=SystemClock().now_ns() + 10 * NS_PER_S),
    ]
    await asyncio.gather(*runs, return_exceptions=True)
    assert crashed == ["long"]


@pytest.mark.nightly("kills at random")
async def test_guards_killed_at_random_lose_no_answer_and_leave_nothing(
    processor: GuardedProcessor, tmp_path: Path
) -> None:
    """Amid loads, runs and texts: every request gets an answer, right or typed; the honest tenant's answers are all
    right; no folder or descriptor of a dead guard stays behind.
    """
    random, clock = Random(7), SystemClock()
    own = adding(tmp_path, "hostile", "own")
    quiet = await processor.load(adding(tmp_path, "quiet", "quiet"))
    words = TokenOrder(str(_words(tmp_path / "words.json")), ["hello"], 8, False)
    descriptors = len(os.listdir("/proc/self/fd"))

    async def work(number: int) -> None:
        handle = await processor.load(replace(own, build_id=f"own{number}"))
        for value in range(50):
            assert await adds(processor, handle, value)
            assert await processor.tokenize(words, "b", "hostile") == [TokenRow([1], [0])]

    for number in range(KILLS_AT_RANDOM):
        try:
            handle: Any = await processor.load(own)
        except LoadFailed:  # nobody was at work when it was killed, so nobody has noticed yet
            handle = await processor.load(own)
        working = [asyncio.ensure_future(work(each)) for each in range(3)]
        wait_ns = clock.now_ns() + random.randrange(NS_PER_S // 50)
        while clock.now_ns() < wait_ns:
            assert await adds(processor, quiet, number)
        os.kill(handle.guard.pid, signal.SIGKILL)
        for error in await asyncio.gather(*working, return_exceptions=True):
            assert error is None or isinstance(error, RunFailed | LoadFailed), error
    assert await adds(processor, quiet)
    with suppress(LoadFailed):
        await processor.load(own)
    last: Any = await processor.load(own)
    assert len(list((tmp_path / "scratch").iterdir())) == 2
    last.guard.end()
    # Threads that look for something have a file open.
    await until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


async def test_crash_of_a_guard_is_blamed_on_the_crashed_run(processor: GuardedProcessor, tmp_path: Path) -> None:
    """Of two runs at once, the run whose thread crashed."""
    crashed: list[tuple[str, str]] = []
    processor.on_crash = lambda build_id, reason: crashed.append((build_id, reason))
    make, inputs, _ = KILLS["division"]
    killer = await processor.load(form_of(make(tmp_path / "killer.onnx"), "hostile"))
    slow = await processor.load(form_of(killers.loop(tmp_path / "slow.onnx"), "hostile"))
    runs = [processor.run(slow, KILLS["loop"][1], None), processor.run(killer, inputs, None)]
    assert [type(error) for error in await asyncio.gather(*runs, return_exceptions=True)] == [RunCrashed, RunCrashed]
    assert crashed == [("killer", "Floating point exception")]


async def test_run_in_a_guard_is_stopped_at_its_deadline(
    processor: GuardedProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the limit of all runs; between nodes by the runtime's flag, so that the build stays."""
    monkeypatch.setattr(dispatcher, "STOP_GRACE_S", PATIENCE_S)  # a busy guard may be late to look at the flag
    slow = await processor.load(form_of(killers.loop(tmp_path / "slow.onnx"), "hostile"))
    with pytest.raises(RunStopped):
        await processor.run(slow, KILLS["loop"][1], None, deadline_ns=SystemClock().now_ns() + NS_PER_S // 20)
    assert (await processor.run(slow, {"N": np.array([3])}, None))["Y"].tolist() == 3.0


async def test_run_after_a_run_with_too_large_outputs_is_answered(tmp_path: Path) -> None:
    """Of two runs on one channel, the first's outputs do not fit its answer area at its largest: the second, that has
    waited for the channel, is answered all the same.
    """
    with guarding(tmp_path, run_s_max=60.0, run_bytes_max=64 * MIB) as processor:
        form = replace(adding(tmp_path, "t"), peak_bytes=512 * MIB)
        handle = await processor.load(form)
        large = {name: np.ones((5 * MIB, 4), np.float32) for name in "AB"}
        runs = [processor.run(handle, inputs, None) for inputs in (large, numbers(1), numbers(2))]
        first, *others = await asyncio.gather(*runs, return_exceptions=True)
        assert isinstance(first, RunFailed)
        sums = [value["SUM"].tolist() for value in others if not isinstance(value, BaseException)]
        assert sums == [[[2.0] * 4], [[3.0] * 4]]


async def test_guard_library_files_are_searched_off_the_event_loop(
    processor: GuardedProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start of each guard: the search reads folders of the disk."""
    cpu, threads = KINDS["cpu"], []

    def looked_for() -> list[Path]:
        threads.append(threading.current_thread())
        return [tmp_path / "lib.so"]

    assert cpu.guard is not None
    monkeypatch.setitem(KINDS, "cpu", replace(cpu, guard=replace(cpu.guard, looked_for=looked_for)))
    handle = await processor.load(adding(tmp_path, "t"))
    assert isinstance(handle, GuardedBuild)
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert (handle.guard.folder / str(tmp_path / "lib.so").lstrip("/")).read_bytes() == b""


async def test_guard_and_fork_server_end_with_a_killed_service(tmp_path: Path) -> None:
    script = tmp_path / "service.py"
    script.write_text(SERVICE)
    add = toys.tiny_add(tmp_path / "add.onnx")
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), str(add), str(tmp_path / "scratch")),
        stderr=asyncio.subprocess.PIPE,
    )
    assert service.stderr is not None
    try:
        watched = [os.pidfd_open(int(pid)) for pid in (await service.stderr.readline()).split()]
    finally:
        service.kill()
        await service.wait()
    assert len(watched) == 2
    async with asyncio.timeout(PATIENCE_S):
        for one in watched:
            await asyncio.to_thread(wait_for_end, one)


SERVICE = """
import asyncio, sys
from pathlib import Path
from appliance.clock import SystemClock
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions

async def main():
    processor = GuardedProcessor(OnnxProcessor("p", 1, 1, 1), SystemClock(), GuardOptions(scratch=Path(sys.argv[2])))
    form = PreparedForm("add", sys.argv[1], 100, optimised=False, guarded_for="t")
    handle = await processor.load(form)
    print(handle.guard.pid, processor.forkserver_pid, file=sys.stderr)
    await asyncio.Event().wait()

asyncio.run(main())
"""
