"""OpenVINO as a kind of processor: it computes the same, from a form that it exported, stops when told to, and is not
imported before the first build.
"""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from appliance.clock import NS_PER_MS, SystemClock
from appliance.domain.errors import LoadFailed, RunRefused, RunStopped
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxSessions, machine
from appliance.runtime.processors.guard import dispatcher
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from appliance.runtime.processors.measuring.same import difference
from appliance.runtime.processors.openvino.processor import OpenVinoProcessor
from appliance.runtime.processors.openvino.session import OpenVinoSessions, Stop
from tests import toys

pytestmark = pytest.mark.gate("real runtimes compute")

IMAGE = {"image": np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.conv_net(tmp_path_factory.mktemp("net") / "net.onnx", 2.0)


def exported(net: Path, folder: Path) -> PreparedForm:
    name = OpenVinoSessions(2, 1).prepare(net, folder)
    assert name is not None
    return PreparedForm("net@openvino", str(folder / name), (folder / name).stat().st_size, True, kind="openvino")


def plain(path: Path) -> PreparedForm:
    return PreparedForm("net@openvino", str(path), path.stat().st_size, False, kind="openvino")


def test_openvino_computes_the_same_as_onnx_runtime(net: Path, tmp_path: Path) -> None:
    """From the exported form, wherever that was moved to; two runs at once; the arrays are the caller's."""
    (tmp_path / "made").mkdir()
    form = exported(net, tmp_path / "made")
    (tmp_path / "made").rename(tmp_path / "kept")
    ours, onnx = OpenVinoSessions(2, 1), OnnxSessions(1)
    loaded = ours.load(PreparedForm(form.build_id, form.path.replace("made", "kept"), 1, True, kind="openvino"))
    expected = onnx.run(onnx.load(plain(net)), IMAGE, None)
    first, second = ours.run(loaded, IMAGE, None), ours.run(loaded, {"image": IMAGE["image"] * 2}, None)

    assert first.keys() == expected.keys()
    for name, array in expected.items():
        assert difference(array, first[name]) < 1e-4
        assert difference(array, second[name]) > 1e-4  # the next run has not written over what was given
    ours.unload(loaded)


@pytest.mark.skipif("bf16" not in machine(), reason="this processor does not compute in bf16")
def test_openvino_computes_in_bf16_only_where_the_form_says_so(net: Path, tmp_path: Path) -> None:
    """The same network in both: what is computed in bf16 is near, and not the same."""
    for name in ("f32", "bf16"):
        (tmp_path / name).mkdir()
    sessions = OpenVinoSessions(1, 1)
    whole = exported(net, tmp_path / "f32")
    file = sessions.prepare_in("bf16", net, tmp_path / "bf16")
    assert file is not None
    less = PreparedForm("net@openvino", str(tmp_path / "bf16" / file), 1, True, kind="openvino", computes_in="bf16")
    expected = OnnxSessions(1).run(OnnxSessions(1).load(plain(net)), IMAGE, None)
    for form, most in ((whole, 1e-4), (less, 5e-2)):
        found = sessions.run(sessions.load(form), IMAGE, None)
        assert all(difference(array, found[name]) < most for name, array in expected.items())
    assert any(difference(array, found[name]) > 1e-4 for name, array in expected.items())
    processor = OpenVinoProcessor("o", 1, threads_per_run=1, loads_parallel_max=1)
    try:
        assert processor.describe().reduced == "bf16"
    finally:
        processor.close()


@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
async def test_openvino_form_serves_in_a_guard(net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that the processor has, which must be the same as where the form was compiled; a run is stopped like
    anywhere else, and the build is given back, which the box is told by kind.
    """
    # A run stops between two nodes. One of these takes up to 0.2 s on a busy machine, and the guard would be ended.
    monkeypatch.setattr(dispatcher, "STOP_GRACE_S", 60.0)

    (tmp_path / "made").mkdir()
    form = exported(net, tmp_path / "made")
    sessions = OpenVinoSessions(2, 1)
    expected = sessions.run(sessions.load(form), IMAGE, None)
    inner = OpenVinoProcessor("o", 2, threads_per_run=1, loads_parallel_max=1)
    guarded = GuardedProcessor(inner, SystemClock(), GuardOptions(scratch=tmp_path / "scratch"))
    taken: list[set[tuple[str, str]]] = []
    guarded.on_base = lambda bases: taken.append(set(bases))
    try:
        build = await guarded.load(replace(form, guarded_for="harbour"))
        found = await asyncio.gather(*(guarded.run(build, IMAGE, None) for _ in range(4)))
        for one in found:
            assert all(np.array_equal(array, one[name]) for name, array in expected.items())
        assert not guarded.can_sleep(build)
        many = {name: np.repeat(array, 128, 0) for name, array in IMAGE.items()}
        with pytest.raises(RunStopped):
            await guarded.run(build, many, None, deadline_ns=SystemClock().now_ns())
        again = await guarded.run(build, IMAGE, None)
        assert all(np.array_equal(array, again[name]) for name, array in expected.items())
        await guarded.unload(build)
        with pytest.raises(LoadFailed, match="none computes on 'cuda'"):
            await guarded.load(replace(form, guarded_for="harbour", kind="cuda"))
        assert taken[-1] == {("harbour", "openvino")}
    finally:
        guarded.close()


def test_openvino_makes_no_form_of_an_unreadable_network(tmp_path: Path) -> None:
    """No file is left, and a load says why."""
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no network")
    (tmp_path / "form").mkdir()

    with pytest.raises(LoadFailed):
        OpenVinoSessions(1, 1).prepare(broken, tmp_path / "form")
    assert list((tmp_path / "form").iterdir()) == []
    with pytest.raises(LoadFailed):
        OpenVinoSessions(1, 1).load(plain(broken))


def test_openvino_refuses_wrong_inputs_with_a_reason(net: Path) -> None:
    sessions = OpenVinoSessions(1, 1)
    loaded = sessions.load(plain(net))

    with pytest.raises(RunRefused, match="incompatible"):
        sessions.run(loaded, {"image": np.zeros((1, 4, 64, 64), np.float32)}, None)
    assert sessions.run(loaded, IMAGE, None)


def _of_one_shape(folder: Path, batch: int) -> Path:
    """A network that takes so many pictures, no more and no less."""
    made = onnx.load(toys.shufflenet(folder / "net.onnx"))
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    del made.graph.value_info[:]
    onnx.save(made, folder / "fixed.onnx")
    return folder / "fixed.onnx"


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.nightly("the same on two workers"))])
@pytest.mark.anyio
async def test_openvino_run_ends_at_the_deadline(tmp_path: Path, workers: int) -> None:
    """Between two of its nodes; the next runs are not disturbed."""
    processor, clock = OpenVinoProcessor("o", workers, threads_per_run=1, loads_parallel_max=1), SystemClock()
    loaded = await processor.load(plain(_of_one_shape(tmp_path, 64)))
    many = {"gpu_0/data_0": np.random.default_rng(0).standard_normal((64, 3, 224, 224)).astype(np.float32)}
    wanted = await processor.run(loaded, many, None)
    for _ in range(2 * workers):
        with pytest.raises(RunStopped):
            await processor.run(loaded, many, None, deadline_ns=clock.now_ns() + 20 * NS_PER_MS)
    for _ in range(2):
        found = await asyncio.gather(*(processor.run(loaded, many, None) for _ in range(workers)))
        assert all(difference(array, one[name]) < 1e-4 for one in found for name, array in wanted.items())
    assert not processor.can_sleep(loaded)
    await processor.unload(loaded)
    processor.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_stop_of_an_openvino_network_of_free_shape_disturbs_no_run(tmp_path: Path, workers: int) -> None:
    """OpenVINO is not told to end a run between two nodes there."""
    sessions = OpenVinoSessions(workers, 1)
    loaded = sessions.load(plain(toys.shufflenet(tmp_path / "net.onnx")))
    images = {"gpu_0/data_0": np.zeros((16, 3, 224, 224), np.float32)}
    cancelled: list[Any] = []

    class Seen(Stop):
        def begin(self, request: Any) -> bool:
            cancelled.append(request)
            is_wanted = super().begin(request)
            self.terminate = True
            return is_wanted

    for _ in range(4):
        with pytest.raises(RunStopped):
            sessions.run(loaded, images, None, Seen())
    assert cancelled == [None] * 4
    assert sessions.run(loaded, images, None, sessions.stop())


class Late(Stop):
    """Comes when a run has begun and OpenVINO has not: nothing runs yet that could be cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[Any] = []

    def begin(self, request: Any) -> bool:
        self.begun.append(request)
        is_wanted = super().begin(request)
        self.terminate = True
        return is_wanted


def test_openvino_stop_between_begin_and_start_ends_the_run(tmp_path: Path) -> None:
    sessions = OpenVinoSessions(1, 1)
    loaded = sessions.load(plain(_of_one_shape(tmp_path, 16)))
    with pytest.raises(RunStopped):
        sessions.run(loaded, {"gpu_0/data_0": np.zeros((16, 3, 224, 224), np.float32)}, None, Late())


@pytest.mark.usefixtures("processes")
def test_first_openvino_runs_of_two_threads_do_not_deadlock(tmp_path: Path) -> None:
    """Of two threads that run first in their process, one is held up wherever OpenVINO's binding calls numpy: with its
    tables still to be filled, the other one would have waited for them with the interpreter's lock, for ever.
    """
    program = f"""
import sys, threading
import numpy as np
from pathlib import Path
from appliance.clock import pause_s
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.openvino.session import OpenVinoSessions, Stop
sessions = OpenVinoSessions(2, 1)
loaded = sessions.load(PreparedForm("add", {str(toys.tiny_add(tmp_path / "add.onnx"))!r}, 1, False))
feeds = {{"A": np.ones((1, 4), np.float32), "B": np.ones((1, 4), np.float32)}}
is_inside, held = threading.Event(), set()
def hold_up(frame, event, argument):
    code = frame.f_code
    if event == "call" and "numpy" in code.co_filename and code not in held:
        held.add(code)
        is_inside.set()
        pause_s(0.5)
def first():
    sys.setprofile(hold_up)
    sessions.run(loaded, feeds, None)
    is_inside.set()
def second():
    is_inside.wait()
    sessions.run(loaded, feeds, None)
threads = [threading.Thread(target=one) for one in (first, second)]
for one in threads: one.start()
for one in threads: one.join()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


@pytest.mark.usefixtures("processes")
def test_openvino_is_not_imported_before_the_first_use() -> None:
    """It takes 50 MB, which only a box that uses it pays; its telemetry is never there."""
    program = """
import sys
from appliance.runtime.processors import PROCESSORS
made = PROCESSORS["openvino"](name="o", workers=1, threads_per_run=1, loads_parallel_max=1)
assert made.describe().fingerprint.startswith("openvino-"), made.describe()
assert "openvino" not in sys.modules
import appliance.runtime.processors.openvino.session
assert "openvino" in sys.modules and sys.modules["openvino_telemetry"] is None
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
