"""The CPU processor over ONNX Runtime, on real networks: right answers, memory given back, and damaged files
refused.
"""

import asyncio
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.confinement.available import available
from appliance.domain.errors import LoadFailed, RunFailed, RunRefused
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.mapped import CachedFile
from appliance.runtime.processors.cpu.session import Loaded, OnnxProcessor, OnnxSessions, fingerprint
from tests import toys
from tests.fakes.forms import prepared_form
from tests.harness.lacking import lacks_page_cache, skip_if

pytestmark = pytest.mark.gate("real runtimes compute")

MEGABYTES = 20.0
PATIENCE_S = 120.0
RANDOM = np.random.default_rng(1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> PreparedForm:
    path = toys.conv_net(tmp_path_factory.mktemp("net") / "net.onnx", MEGABYTES)
    return PreparedForm("net", str(path), path.stat().st_size, optimised=False)


@pytest.fixture(scope="module")
def prepared(plain: PreparedForm, tmp_path_factory: pytest.TempPathFactory) -> PreparedForm:
    folder = tmp_path_factory.mktemp("prepared")
    assert OnnxSessions(1).prepare(Path(plain.path), folder)
    form = prepared_form("net", folder)
    return form


@pytest.fixture
def processor() -> Iterator[OnnxProcessor]:
    made = OnnxProcessor("cpu", workers=4, threads_per_run=1, loads_parallel_max=2)
    yield made
    made.close()


def image(batch: int = 1, side: int = 64) -> dict[str, np.ndarray]:
    return {"image": RANDOM.standard_normal((batch, 3, side, side), np.float32)}


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "side"), [(1, 64), (3, 48)])
def test_prepared_form_answers_like_the_plain_file(
    plain: PreparedForm, prepared: PreparedForm, batch: int, side: int
) -> None:
    """Optimised, prepacked and mapped: within 1e-4 of the plain file, for sizes that preparing has not seen."""
    sessions = OnnxSessions(1)
    one, other = sessions.load(plain), sessions.load(prepared)
    inputs = image(batch, side)
    expected, got = sessions.run(one, inputs, None), sessions.run(other, inputs, None)
    assert expected.keys() == got.keys() == {"probabilities"}
    np.testing.assert_allclose(got["probabilities"], expected["probabilities"], atol=1e-4)
    assert np.ptp(expected["probabilities"]) > 1e-6  # an answer that never changes would always agree


@pytest.mark.anyio
async def test_concurrent_runs_on_a_session_get_their_own_answers(
    processor: OnnxProcessor, prepared: PreparedForm
) -> None:
    """Sixteen runs over four threads."""
    handle = await processor.load(prepared)
    inputs = [image() for _ in range(16)]
    alone = [processor.sessions.run(handle, each, None)["probabilities"] for each in inputs]
    together = await asyncio.gather(*(processor.run(handle, each, None) for each in inputs))
    for expected, got in zip(alone, together, strict=True):
        np.testing.assert_array_equal(got["probabilities"], expected)
    await processor.unload(handle)


@pytest.mark.anyio
@pytest.mark.parametrize("inline", [True, False])
async def test_refused_run_gives_a_reason_and_leaves_the_session_usable(
    processor: OnnxProcessor, plain: PreparedForm, inline: bool
) -> None:
    """In the runtime's own words."""
    handle = await processor.load(plain)
    for inputs in ({"image": np.zeros((1, 4, 64, 64), np.float32)}, {}, {"image": np.zeros(3)}):
        with pytest.raises(RunRefused) as caught:
            await _run(processor, handle, inputs, inline)
        assert caught.value.variant_id == "net"
        assert caught.value.reason
    assert (await _run(processor, handle, image(), inline))["probabilities"].shape == (1, 10)


async def _run(processor: OnnxProcessor, handle: Any, inputs: Any, inline: bool) -> Any:
    return processor.run_inline(handle, inputs, None) if inline else await processor.run(handle, inputs, None)


@pytest.mark.anyio
async def test_loads_leave_the_event_loop_free(processor: OnnxProcessor, plain: PreparedForm) -> None:
    """While a network is read and optimised, everything else goes on."""
    loading = asyncio.ensure_future(processor.load(plain))
    turns = 0
    while not loading.done():
        await asyncio.sleep(0)  # noqa: TID251 - counting turns of the real loop is the test
        turns += 1
    assert turns > 3, "on the event loop itself the load would be one or two"


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_unload_does_not_wait_for_loads(plain: PreparedForm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load often waits for the memory that an unload gives back: behind other loads it would be late for nothing."""
    processor = OnnxProcessor("cpu", workers=1, threads_per_run=1, loads_parallel_max=1)
    let_on, load_now = threading.Event(), processor.sessions.load

    def load_later(form: PreparedForm) -> Loaded:
        assert let_on.wait(PATIENCE_S)
        return load_now(form)

    try:
        handle = await processor.load(plain)
        monkeypatch.setattr(processor.sessions, "load", load_later)
        loads = [asyncio.ensure_future(processor.load(plain)) for _ in range(2)]
        await processor.unload(handle)
        assert not any(load.done() for load in loads)
        let_on.set()
        for loaded in await asyncio.gather(*loads):
            await processor.unload(loaded)
    finally:
        let_on.set()
        processor.close()


def told_by(child: str, *arguments: str) -> Any:
    """What a child of this folder says."""
    command = [sys.executable, "-m", f"tests.runtime.processors.cpu.{child}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.usefixtures("processes")
def test_unload_and_sleep_give_memory_back(plain: PreparedForm, prepared: PreparedForm) -> None:
    """After unloading, plain or mapped, five times each and with the outputs still held, no build is left in memory,
    nor when it is asleep: half of one would tell.
    """
    story = told_by("loading_child", plain.path, str(Path(prepared.path).parent))
    (rest,) = story["rest"]
    is_there = rest + MEGABYTES / 2
    for form in ("plain", "prepared"):
        assert len(story[f"{form} loaded"]) == len(story[f"{form} unloaded"]) == 5
        assert min(story[f"{form} loaded"]) > is_there
        assert max(story[f"{form} unloaded"]) < is_there
    assert not story["plain asleep"]
    assert len(story["prepared asleep"]) == 5
    assert max(story["prepared asleep"]) < is_there


@pytest.mark.anyio
async def test_run_after_unload_is_refused(processor: OnnxProcessor, plain: PreparedForm) -> None:
    """A handle that was given back computes nothing, and says so."""
    handle = await processor.load(plain)
    await processor.unload(handle)
    with pytest.raises(RunFailed):
        await processor.run(handle, image(), None)


# -- damaged files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [None, b"", b"garbage", b"\x08\x0a" * 1000], ids=["missing", "empty", "text", "protobuf"]
)
@pytest.mark.parametrize("optimised", [True, False])
def test_load_of_a_garbage_file_fails(tmp_path: Path, content: bytes | None, optimised: bool) -> None:
    """Nothing that lies in the file takes the process with it."""
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadFailed) as caught:
        OnnxSessions(1).load(PreparedForm("b", str(path), 0, optimised))
    assert caught.value.build_id == "b"
    assert len(caught.value.reason) <= 500


@pytest.mark.parametrize(
    ("part", "share"),
    [(part, share) for part in ("model.onnx", "model.bin") for share in (0.0, 0.5, 0.99)] + [("model.bin", None)],
)
def test_truncated_prepared_form_does_not_load(
    prepared: PreparedForm, tmp_path: Path, part: str, share: float | None
) -> None:
    """Cut off anywhere, as after a power cut, or without a file: refused instead of answering nonsense."""
    folder = tmp_path / "form"
    shutil.copytree(Path(prepared.path).parent, folder)
    if share is None:
        (folder / part).unlink()
    else:
        os.truncate(folder / part, int(share * (folder / part).stat().st_size))
    with pytest.raises(LoadFailed):
        OnnxSessions(1).load(prepared_form("net", folder))


def test_preparing_garbage_makes_no_form_and_leaves_no_files(tmp_path: Path) -> None:
    source = tmp_path / "source.onnx"
    source.write_bytes(b"garbage")
    target = tmp_path / "target"
    target.mkdir()
    assert not OnnxSessions(1).prepare(source, target)
    assert list(target.iterdir()) == []


def test_size_of_a_prepared_form_is_graph_and_weights(prepared: PreparedForm) -> None:
    assert prepared.optimised
    assert prepared.size_bytes == sum(f.stat().st_size for f in Path(prepared.path).parent.iterdir())
    assert prepared.size_bytes > 0.9 * MEGABYTES * 1e6


# -- description -------------------------------------------------------------------------------------------------------


def test_fingerprint_of_the_cpu_tells_threads_of_a_run_apart(processor: OnnxProcessor) -> None:
    """Prepared forms are kept by the fingerprint."""
    assert processor.describe().fingerprint == fingerprint(1) != fingerprint(2)


@pytest.mark.usefixtures("processes")
def test_onnx_runtime_keeps_no_telemetry_files(tmp_path: Path) -> None:
    """ONNX Runtime by itself opens a database in the user's cache folder when it is imported."""
    environment = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    importing = "import appliance.runtime.processors.cpu.session"
    subprocess.run(
        [sys.executable, "-c", importing], env=environment | {"HOME": str(tmp_path)}, check=True, timeout=240
    )
    assert list(tmp_path.rglob("*")) == []


def test_load_reads_uncached_weights_from_disk_in_one_go(prepared: PreparedForm, tmp_path: Path) -> None:
    """Before the session maps them in pieces; a file that is in the page cache is not read."""
    skip_if(lacks_page_cache(tmp_path))
    folder = tmp_path / "form"
    shutil.copytree(Path(prepared.path).parent, folder)
    form = prepared_form("net", folder)
    weights = folder / "model.bin"
    with weights.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert CachedFile(weights).cached_bytes() == 0
    loaded = OnnxSessions(1, advise=lambda *_: errno.EINVAL).load(form)  # a kernel that would map nothing in
    assert loaded.weights is None
    assert CachedFile(weights).cached_bytes() == weights.stat().st_size


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(not available().calls, reason="the kernel has no filters of system calls")
@pytest.mark.parametrize(("calls", "sleeps"), [(["madvise", "mincore"], False), (["mincore"], True)])
def test_sessions_work_where_the_kernel_refuses_madvise_or_mincore(
    prepared: PreparedForm, calls: list[str], sleeps: bool
) -> None:
    """Without `madvise` nothing sleeps and all else is as ever; without `mincore` files are taken for cached."""
    told = told_by("refused_child", str(Path(prepared.path).parent), *calls)
    assert told == {"restricted": True, "sleeps": sleeps, "same": True}
