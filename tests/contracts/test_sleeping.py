"""Every kind of processor lets builds sleep and wakes them, in the service and in a guard, as the port says."""

import asyncio
import errno
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from appliance.clock import NS_PER_MS, SystemClock
from appliance.domain.errors import LoadFailed, RunFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors import PROCESSORS
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from tests import toys
from tests.fakes.forms import prepared_form
from tests.fakes.mappings import resident_bytes
from tests.harness.lacking import lacks_leases, lacks_page_cache, skip_if

MEGABYTES = 12
CLOCK = SystemClock()
pytestmark = pytest.mark.usefixtures("processes")
IMAGE = {"image": np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)}


@pytest.fixture(params=["cpu", "cpu in a guard"])
def home(request: pytest.FixtureRequest) -> str:
    """Of the kinds of processors, those of which builds can sleep."""
    return str(request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.conv_net(tmp_path_factory.mktemp("net") / "net.onnx", MEGABYTES)


@pytest.fixture(scope="module")
def prepared(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    assert OnnxSessions(1).prepare(plain, folder)
    return folder


@pytest.fixture
def form(prepared: Path, tmp_path: Path, home: str) -> PreparedForm:
    """A prepared form of the test's own."""
    folder = tmp_path / "form"
    shutil.copytree(prepared, folder)
    found = prepared_form("net", folder)
    return replace(found, guarded_for="harbour" if "guard" in home else None)


def weights(form: PreparedForm) -> Path:
    return max(Path(form.path).parent.iterdir(), key=lambda file: file.stat().st_size)


def leave_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def mapped_bytes(handle: Any, form: PreparedForm) -> int:
    """Those of the build's weights that are in the memory of the process in which it lives. By inode: other builds have
    weights of the same name, and a guard another path to these.
    """
    process = handle.guard.pid if hasattr(handle, "guard") else os.getpid()
    return resident_bytes(weights(form).stat().st_ino, process)


@pytest.mark.anyio
async def test_sleeping_build_gives_memory_back_and_wakes_with_equal_answers(
    processor: Any, form: PreparedForm
) -> None:
    """Any number of times; asleep, the mapped weights are out of memory."""
    handle = await processor.load(form)
    assert processor.can_sleep(handle)
    assert handle.mapped_bytes > MEGABYTES * 1e6 / 2
    expected = (await processor.run(handle, IMAGE, None))["probabilities"]
    for _ in range(3):
        assert mapped_bytes(handle, form) == handle.mapped_bytes
        assert 0 <= await processor.sleep(handle) < 3 << 20
        assert mapped_bytes(handle, form) == 0
        await processor.wake(handle)
        assert mapped_bytes(handle, form) == handle.mapped_bytes
        np.testing.assert_array_equal((await processor.run(handle, IMAGE, None))["probabilities"], expected)
    assert processor.can_sleep(handle)
    await processor.unload(handle)


@pytest.mark.anyio
async def test_repeated_sleep_or_wake_of_a_build_changes_nothing(processor: Any, form: PreparedForm) -> None:
    handle = await processor.load(form)
    await processor.wake(handle)
    kept = [await processor.sleep(handle) for _ in range(2)]
    assert kept[0] == kept[1]
    for _ in range(2):
        await processor.wake(handle)
    assert (await processor.run(handle, IMAGE, None))["probabilities"].shape[0] == 1


@pytest.mark.anyio
async def test_sleeping_build_can_be_unloaded_and_loaded_anew(processor: Any, form: PreparedForm) -> None:
    handle = await processor.load(form)
    await processor.sleep(handle)
    await processor.unload(handle)
    again = await processor.load(form)
    await processor.sleep(again)
    await processor.wake(again)
    assert (await processor.run(again, IMAGE, None))["probabilities"].shape[0] == 1


@pytest.mark.anyio
async def test_builds_over_one_file_sleep_independently(processor: Any, form: PreparedForm) -> None:
    """The unload of one leaves the other its memory."""
    one, other = [await processor.load(form) for _ in range(2)]
    expected = (await processor.run(one, IMAGE, None))["probabilities"]
    await processor.sleep(one)
    np.testing.assert_array_equal((await processor.run(other, IMAGE, None))["probabilities"], expected)
    await processor.unload(other)
    await processor.wake(one)
    np.testing.assert_array_equal((await processor.run(one, IMAGE, None))["probabilities"], expected)


@pytest.mark.anyio
async def test_sleeping_build_wakes_after_its_file_was_deleted(processor: Any, form: PreparedForm) -> None:
    """The mapping of a file that was deleted lives on."""
    handle = await processor.load(form)
    expected = (await processor.run(handle, IMAGE, None))["probabilities"]
    await processor.sleep(handle)
    shutil.rmtree(Path(form.path).parent)
    await processor.read_ahead(handle)
    assert processor.wake_ns(handle) > 0
    await processor.wake(handle)
    np.testing.assert_array_equal((await processor.run(handle, IMAGE, None))["probabilities"], expected)


@pytest.mark.anyio
async def test_wake_estimate_grows_outside_the_page_cache_until_read_ahead(
    processor: Any, form: PreparedForm, tmp_path: Path
) -> None:
    """The answer is the same."""
    skip_if(lacks_page_cache(tmp_path))
    handle = await processor.load(form)
    expected = (await processor.run(handle, IMAGE, None))["probabilities"]
    for reads_ahead in (False, True):
        await processor.sleep(handle)
        in_cache_ns = processor.wake_ns(handle)
        leave_cache(weights(form))
        from_disk_ns = processor.wake_ns(handle)
        assert from_disk_ns > in_cache_ns
        if reads_ahead:
            await processor.read_ahead(handle)
            while processor.wake_ns(handle) > in_cache_ns:
                await CLOCK.sleep_until_ns(CLOCK.now_ns() + NS_PER_MS)
        await processor.wake(handle)
        np.testing.assert_array_equal((await processor.run(handle, IMAGE, None))["probabilities"], expected)


@pytest.mark.anyio
async def test_wake_of_a_build_with_truncated_weights_is_a_failed_load(processor: Any, form: PreparedForm) -> None:
    """Pages that cannot be read any more end no process."""
    handle = await processor.load(form)
    other = await processor.load(replace(form, build_id="other"))
    await processor.sleep(handle)
    for one in (handle, other):
        if one.lease is not None:  # as on a file system without leases: a disk asks nobody
            one.lease.end()
    unfit: list[str] = []
    processor.on_unfit = unfit.append
    os.truncate(weights(form), weights(form).stat().st_size // 2)
    with pytest.raises(LoadFailed, match="cannot be read"):
        await processor.wake(handle)
    assert unfit == (["net"] if isinstance(processor, GuardedProcessor) else [])
    await processor.unload(handle)
    await processor.unload(other)
    with pytest.raises(LoadFailed):
        await processor.load(form)


WRITERS = {
    "cut short": "import os, sys; os.truncate(sys.argv[1], 10)",
    "written": "import sys; open(sys.argv[1], 'r+b').write(bytes(1 << 20))",
    "made anew": "import sys; open(sys.argv[1], 'wb').write(b'new')",
}


@pytest.mark.anyio
@pytest.mark.parametrize("tenant", [None, "harbour"])
@pytest.mark.parametrize("writer", WRITERS)
async def test_program_that_writes_weights_waits_until_builds_are_unloaded(
    writer: str, tenant: str | None, form: PreparedForm, tmp_path: Path
) -> None:
    """Whether the build sleeps or is awake; until then answers are right, and no process ends. The box does not wait
    for a program that opens the file for reading.
    """
    skip_if(lacks_leases(tmp_path))
    inner = PROCESSORS["cpu"](name="p", workers=2, threads_per_run=1, loads_parallel_max=1)
    processor = GuardedProcessor(inner, CLOCK, GuardOptions(scratch=tmp_path / "scratch"))
    unfit = asyncio.Queue[str]()
    processor.on_unfit = unfit.put_nowait
    awake, asleep = [await processor.load(replace(form, build_id=id, guarded_for=tenant)) for id in ("one", "two")]
    assert awake.lease is not None
    expected = (await processor.run(awake, IMAGE, None))["probabilities"]
    await processor.sleep(asleep)
    size_bytes = len(weights(form).read_bytes())
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITERS[writer], weights(form))
    told: set[str] = set()
    while told != {"one", "two"}:  # once or more often
        told.add(await unfit.get())
    assert weights(form).stat().st_size == size_bytes
    np.testing.assert_array_equal((await processor.run(awake, IMAGE, None))["probabilities"], expected)
    await processor.wake(asleep)
    while await unfit.get() != "two":
        pass
    np.testing.assert_array_equal((await processor.run(asleep, IMAGE, None))["probabilities"], expected)
    await processor.unload(asleep)
    assert other.returncode is None
    await processor.unload(awake)
    assert await other.wait() == 0
    processor.close()


@pytest.mark.anyio
async def test_build_of_an_unprepared_file_cannot_sleep(processor: Any, plain: Path, form: PreparedForm) -> None:
    """Its weights are copies."""
    copied = replace(form, build_id="plain", path=str(plain), optimised=False)
    handle = await processor.load(copied)
    assert not processor.can_sleep(handle)
    await processor.unload(handle)


@pytest.mark.anyio
async def test_build_cannot_sleep_on_a_kernel_without_the_calls(prepared: Path) -> None:
    """All else is as ever."""
    processor = PROCESSORS["cpu"](
        name="p", workers=1, threads_per_run=1, loads_parallel_max=1, advise=lambda *_: errno.EINVAL
    )
    form = prepared_form("net", prepared)
    handle = await processor.load(form)
    assert not processor.can_sleep(handle)
    assert (await processor.run(handle, IMAGE, None))["probabilities"].shape[0] == 1
    await processor.unload(handle)
    processor.close()


@pytest.mark.nightly("a process that is killed")
@pytest.mark.anyio
async def test_guard_killed_around_sleep_loses_its_build_without_blame(form: PreparedForm, tmp_path: Path) -> None:
    """While its build goes to sleep, wakes or does neither: each caller gets an answer or an error of the box, the
    build is lost once, no build is blamed, and the next load finds another guard.
    """
    inner = PROCESSORS["cpu"](name="p", workers=2, threads_per_run=1, loads_parallel_max=1)
    processor = GuardedProcessor(inner, CLOCK, GuardOptions(scratch=tmp_path / "scratch"))
    lost: list[str] = []
    blamed: list[str] = []
    processor.on_lost = lost.append
    processor.on_crash = lambda build_id, reason: blamed.append(build_id)
    random = Random(4)
    for killed in range(1, 13):
        handle: Any = await processor.load(replace(form, guarded_for="harbour"))
        turns = asyncio.create_task(take_turns(processor, handle))
        await CLOCK.sleep_until_ns(CLOCK.now_ns() + random.randrange(30 * NS_PER_MS))
        os.kill(handle.guard.pid, signal.SIGKILL)
        with pytest.raises((LoadFailed, RunFailed)):
            await turns
        assert len(lost) == killed
        await processor.unload(handle)
    assert not blamed
    processor.close()


async def take_turns(processor: GuardedProcessor, handle: Any) -> None:
    while True:
        await processor.sleep(handle)
        await processor.read_ahead(handle)
        await processor.wake(handle)


@pytest.mark.anyio
async def test_sleeping_builds_are_lost_with_their_guard(form: PreparedForm, tmp_path: Path) -> None:
    """As if they had been awake; no build is blamed, and later calls for them fail by name."""
    inner = PROCESSORS["cpu"](name="p", workers=2, threads_per_run=1, loads_parallel_max=1)
    processor = GuardedProcessor(inner, SystemClock(), GuardOptions(scratch=tmp_path / "scratch"))
    lost: list[str] = []
    blamed: list[str] = []
    processor.on_lost = lost.append
    processor.on_crash = lambda build_id, reason: blamed.append(build_id)
    handle: Any = await processor.load(replace(form, guarded_for="harbour"))
    await processor.sleep(handle)
    os.kill(handle.guard.pid, signal.SIGKILL)
    with pytest.raises(LoadFailed):
        await processor.wake(handle)
    assert lost == ["net"]
    assert not blamed
    with pytest.raises(RunFailed):
        await processor.sleep(handle)
    await processor.unload(handle)
    processor.close()
