"""Networks that another kind of processor does not run whole are cut for it, after they were measured."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

from appliance.confinement.limits import ChildLimits
from appliance.domain.catalogue import TaskKind, TaskSpec, Variant
from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import ProcessorDescription
from appliance.domain.names import build_id, part_build_id
from appliance.domain.parts import Cut
from appliance.modelstore import arrays
from appliance.modelstore.importing.cutting import Cutting
from appliance.modelstore.importing.importer import ImportOptions
from appliance.modelstore.importing.prepared import MARK, PARTS, part_file
from appliance.modelstore.importing.profiling import DIFFERENCE_MAX_OTHERS
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.measuring.measure import ChildMeasure
from appliance.runtime.processors.measuring.same import difference
from appliance.runtime.processors.sessions import InferenceSessions, sessions_of
from tests import toys
from tests.fakes.measure import FakeMeasure
from tests.fakes.waiting import until
from tests.modelstore.boxes import CPU, Parts, parts
from tests.modelstore.importing.asking import asked, imported
from tests.modelstore.networks import model, write
from tests.modelstore.stages.dissected import Feeds
from tests.runtime.processors.refusing_child import NPU

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.nightly("each cut measures parts in child processes for seconds"),
    pytest.mark.usefixtures("processes"),
]

OTHER = ProcessorDescription("npu", "npu", 1, 1, "npu", "fake accelerator")


def net(folder: Path) -> Path:
    """Two products with a Softmax between them, and weights that are worth a file."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((64, 64)).astype(np.float32) for name in ("w", "v")}
    nodes = "a = MatMul(x, w) b = Relu(a) c = Softmax(b) d = MatMul(c, v) y = Relu(d)"
    made = model(nodes, {"x": ("n", 64)}, {"y": ("n", 64)}, weights)
    return Path(write(made, folder))


def asked_for(path: Path) -> Any:
    return asked(path, task=TaskSpec(TaskKind.TENSOR))


def refusing(*, op_type: str = "Softmax") -> FakeMeasure:
    """A second kind that takes neither that operator nor what has it inside."""

    def has(path: str) -> bool:
        return op_type in {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}

    measure = FakeMeasure()
    measure.takes = lambda network: not has(network)
    measure.cannot_prepare = lambda source, processor: processor == OTHER.name and has(source)
    return measure


async def cut(box: Parts) -> tuple[Variant, Cut]:
    """The only variant of the model once it is known how it is cut, and that."""
    (variant,) = (await box.model_once(lambda one: one.cut)).variants
    assert variant.cut is not None
    return variant, variant.cut


OPTIONS = ImportOptions(part_ops_min=1)


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Parts]:
    """A box with a second kind of processor, which takes no Softmax."""
    async with parts(tmp_path / "state", others=[OTHER], measure=refusing(), options=OPTIONS) as made:
        yield made


@pytest.mark.nightly("another whole import")
@pytest.mark.gate("one whole cut")
async def test_network_is_cut_for_processor_that_cannot_run_all_operators(tmp_path: Path) -> None:
    """Each part is a build of its own on each of its kinds, and is there after a restart without being made again."""
    async with parts(tmp_path / "state", others=[OTHER], measure=refusing(), options=OPTIONS) as box:
        await imported(box, asked_for(net(tmp_path)))
        variant, found = await cut(box)
        assert found.asked == {"cpu": CPU.fingerprint, "npu": OTHER.fingerprint}
        assert [part.kinds for part in found.parts] == [("cpu", "npu"), ("cpu",), ("cpu", "npu")]
        assert [dict(part.op_types) for part in found.parts] == [
            {"MatMul": 1, "Relu": 1},
            {"Softmax": 1},
            {"MatMul": 1, "Relu": 1},
        ]
        assert [found.needs(number) for number in range(3)] == [(), (0,), (1,)]
        assert found.parts[0].outputs == found.parts[1].inputs
        assert variant.other_profiles == (), "as a whole it is not run there"
        for number, part in enumerate(found.parts):
            for kind in part.kinds:
                form = await box.builds.open_build(part_build_id(variant.content_sha256, number, kind))
                assert (form.kind, form.optimised) == (kind, True)
                assert form.resident_bytes == part.profiles[0].resident_bytes
        with pytest.raises(LoadFailed):
            await box.builds.open_build(part_build_id(variant.content_sha256, 1, "npu"))
        tried = box.measure.tried_forms
        assert [is_compared for _id, processor, is_compared in tried if processor == "npu"] == [True, True]
        assert not list((tmp_path / "state/prepared").glob("*/tmp-*"))
    measure = refusing()
    async with parts(tmp_path / "state", others=[OTHER], measure=measure, options=OPTIONS) as box:
        assert (box.builds.unmeasured(), box.builds.uncut()) == ([], [])
        again = await box.builds.open_build(part_build_id(variant.content_sha256, 2, "npu"))
        assert again.optimised
        assert measure.prepared == []


@pytest.mark.parametrize(("kind", "difference_max"), [("npu", 1e-3), ("dla", 0.01)])
async def test_part_results_may_differ_within_tolerance_of_processor(
    tmp_path: Path, kind: str, difference_max: float
) -> None:
    """Next to nothing, and on a kind that knows half precision only what that rounds."""
    other, measure = replace(OTHER, kind=kind), refusing()
    async with parts(tmp_path / "state", others=[other], measure=measure, options=OPTIONS) as box:
        await imported(box, asked_for(net(tmp_path)))
        _, found = await cut(box)
        assert [part.kinds for part in found.parts] == [("cpu", kind), ("cpu",), ("cpu", kind)]
        assert {one.difference_max for one in measure.references} == {difference_max}


async def test_largest_part_of_network_is_timed_and_others_are_estimated(box: Parts, tmp_path: Path) -> None:
    """On each kind one profile, by batch; the rest by operations and bytes."""
    await imported(box, asked_for(net(tmp_path)))
    before = len(box.measure.profiled)
    _, made = await cut(box)
    assert len(box.measure.profiled) - before == 2
    for kind in ("cpu", "npu"):
        found = [profile for part in made.parts for profile in part.profiles if profile.kind == kind]
        assert sum(profile.is_measured for profile in found) == 1
        measured = next(profile for profile in found if profile.is_measured)
        for profile in found:
            assert [row.batch for row in profile.times] == [1, 2, 4, 8]
            assert profile.p50_ms() <= measured.p50_ms()
    softmax, product = made.parts[1], made.parts[0]
    wanted = (softmax.flops + 10 * softmax.tensor_bytes) / (product.flops + 10 * product.tensor_bytes)
    ratio = softmax.profiles[0].p50_ms() / product.profiles[0].p50_ms()
    assert ratio == pytest.approx(wanted, rel=1e-3)


async def test_network_is_not_cut_where_every_processor_runs_all(tmp_path: Path) -> None:
    async with parts(tmp_path / "state", others=[OTHER], options=OPTIONS) as box:
        await imported(box, asked_for(net(tmp_path)))
        (variant,) = (await box.model_once(lambda one: one.other_profiles)).variants
        assert box.builds.uncut() == []
        assert variant.cut is None
        assert not (tmp_path / "state/prepared" / PARTS).exists()


@pytest.mark.parametrize("how", ["all operators", "no operator", "one unit", "differs"])
async def test_network_that_cannot_be_cut_stays_whole_with_reason(tmp_path: Path, how: str) -> None:
    """The cut is tried once, also over a restart."""
    measure = refusing()
    options = OPTIONS
    if how == "all operators":
        measure.takes = lambda network: True
    elif how == "no operator":
        measure.takes = lambda network: False
    elif how == "one unit":
        options = ImportOptions(parts_max=1)
    else:
        measure.differs = True
    async with parts(tmp_path / "state", others=[OTHER], measure=measure, options=options) as box:
        await imported(box, asked_for(net(tmp_path)))
        variant, found = await cut(box)
        assert found.parts == ()
        assert found.reason
        assert (await box.builds.open_build(build_id(variant.content_sha256, "cpu"))).optimised
        assert not list((tmp_path / "state/prepared" / PARTS).iterdir())
    async with parts(tmp_path / "state", others=[OTHER], measure=measure, options=options) as box:
        assert (box.builds.unmeasured(), box.builds.uncut()) == ([], [])


@pytest.mark.parametrize("what", ["kinds", "files"])
async def test_network_is_cut_anew_after_library_change_or_lost_files(tmp_path: Path, what: str) -> None:
    """Another library version may take other operators; files may be lost."""
    async with parts(tmp_path / "state", others=[OTHER], measure=refusing(), options=OPTIONS) as box:
        await imported(box, asked_for(net(tmp_path)))
        _, before = await cut(box)
    other, measure = OTHER, refusing()
    if what == "kinds":
        other = replace(OTHER, fingerprint="a newer one")
        measure.takes = lambda network: "Relu" not in Path(network).read_bytes().decode("latin-1")
        measure.cannot_prepare = lambda source, processor: processor == "npu" and b"Relu" in Path(source).read_bytes()
    else:
        await asyncio.to_thread(shutil.rmtree, tmp_path / "state/prepared" / PARTS)
    async with parts(tmp_path / "state", others=[other], measure=measure, options=OPTIONS) as box:
        await box.model_once(lambda one: one.cut and one.cut.asked == box.builds.asked and not box.builds.uncut())
        variant, again = await cut(box)
        if what == "files":
            assert again == before
        else:
            assert [part.kinds for part in again.parts] == [("cpu", "npu"), ("cpu",), ("cpu", "npu"), ("cpu",)]
        for number, part in enumerate(again.parts):
            for kind in part.kinds:
                assert await box.builds.open_build(part_build_id(variant.content_sha256, number, kind))


async def test_parts_of_network_are_deleted_with_model(box: Parts, tmp_path: Path) -> None:
    """Nothing of it stays on the disk."""
    await imported(box, asked_for(net(tmp_path)))
    await cut(box)
    assert list((box.store.state_dir / "prepared" / PARTS).iterdir())
    await box.deletion.delete("default/net")
    assert not box.files("prepared")


@pytest.mark.gate("quick")
def test_arrays_from_child_are_read_only_if_well_formed_and_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but arrays by name is read, and no more than is wanted."""
    arrays.save(tmp_path / "good.npz", {"x/1": np.arange(3), "y": np.float32(2) * np.ones((2, 2), np.float32)})
    assert arrays.load(tmp_path / "good.npz").keys() == {"x/1", "y"}
    np.testing.assert_array_equal(arrays.load(tmp_path / "good.npz", ["x/1"])["x/1"], [0, 1, 2])
    (tmp_path / "noise.npz").write_bytes(b"noise")
    monkeypatch.setattr(arrays, "BYTES_MAX", 2000)
    np.savez_compressed(tmp_path / "large.npz", np.zeros(1000))
    np.savez(tmp_path / "objects.npz", np.array([{}], dtype=object))
    for name in ("noise", "large", "objects", "absent"):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever numpy says
            arrays.load(tmp_path / f"{name}.npz")
    with pytest.raises(ValueError, match="no arrays"):
        arrays.load(tmp_path / "good.npz", ["z"])


async def run_parts(box: Parts, variant: Variant, feeds: Feeds, sessions: Mapping[str, InferenceSessions]) -> Feeds:
    """One part after the other, each on the last of its kinds, as the box would load them."""
    assert variant.cut is not None
    there = dict(feeds)
    for number, part in enumerate(variant.cut.parts):
        kind = part.kinds[-1]
        loaded = sessions[kind].load(await box.builds.open_build(part_build_id(variant.content_sha256, number, kind)))
        there |= sessions[kind].run(loaded, {name: there[name] for name in part.inputs}, None)
    return there


async def test_real_network_in_parts_computes_same_as_whole(tmp_path: Path) -> None:
    """With the real stages and the real measuring child, on an accelerator that does not move data about; weights are
    in one file.
    """
    state = tmp_path / "state"
    limits = ChildLimits(wall_s=120, nice=0)
    scratch = tmp_path / "measuring"
    scratch.mkdir()
    measure = ChildMeasure([CPU, NPU], limits, scratch, "tests.runtime.processors.refusing_child")
    async with parts(state, others=[NPU], measure=cast(FakeMeasure, measure)) as box:
        source = toys.shufflenet(tmp_path / "shufflenet.onnx")
        await imported(box, asked(source))
        variant, made = await cut(box)
        assert made.reason == ""
        assert 2 <= len(made.parts) <= 16
        of_npu = sum(part.flops for part in made.parts if "npu" in part.kinds)
        assert of_npu > 0.5 * sum(part.flops for part in made.parts)
        assert all(profile.resident_bytes >= part.size_bytes for part in made.parts for profile in part.profiles)
        name = variant.inputs[0].name
        feeds = {name: np.random.default_rng(1).standard_normal((2, 3, 224, 224)).astype(np.float32)}
        sessions = OnnxSessions(1)
        whole = sessions.load(await box.builds.open_build(build_id(variant.content_sha256, "cpu")))
        wanted = sessions.run(whole, feeds, None)
        found = await run_parts(box, variant, feeds, {"cpu": sessions, "npu": sessions})
        for output, array in wanted.items():
            assert difference(array, found[output]) < DIFFERENCE_MAX_OTHERS
        home = state / "prepared" / PARTS / variant.content_sha256[:24]
        assert {file.name for file in home.iterdir()} == {
            MARK,
            "model.bin",
            *(part_file(number) for number in range(len(made.parts))),
        }
        assert sum(file.stat().st_size for file in home.iterdir()) < 1.2 * variant.size_bytes


STEP = 0.05
"""Of the bytes in `quantised`."""
LAST = np.random.default_rng(3).standard_normal((16, 4)).astype(np.float32)
"""Its last weights, in full precision."""


def quantised(folder: Path) -> Path:
    """A convolution net of integers; OpenVINO does not know its pooling."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "s": np.array(STEP, np.float32),
        "t": np.array(0.0371, np.float32),  # no sum lies in the middle between two steps
        "z": np.array(128, np.uint8),
        "w": rng.integers(100, 156, (16, 3, 3, 3)).astype(np.uint8),
        "v": LAST,
    }
    nodes = (
        "q = QuantizeLinear(x, s, z) a = QLinearConv(q, s, z, w, t, z, s, z) "
        "b = com.microsoft.QLinearGlobalAveragePool(a, s, z, s, z) c = DequantizeLinear(b, s, z) "
        "d = Flatten(c) y = MatMul(d, v)"
    )
    return Path(write(model(nodes, {"x": ("n", 3, 16, 16)}, {"y": ("n", 4)}, weights), folder))


async def test_openvino_runs_parts_of_network_with_unknown_operator(tmp_path: Path) -> None:
    """One operator that OpenVINO does not know stays with the first kind; what it computes of the rest is the same
    within a step of the bytes, which each kind of processor rounds in its own way.
    """
    other = ProcessorDescription("openvino", "openvino", 1, 1, "host", "a library")
    (tmp_path / "measuring").mkdir()
    measure = ChildMeasure([CPU, other], ChildLimits(wall_s=120, nice=0), tmp_path / "measuring")
    box_parts = parts(tmp_path / "state", others=[other], measure=cast(FakeMeasure, measure), options=OPTIONS)
    async with box_parts as box:
        await imported(box, asked_for(quantised(tmp_path)))
        variant, made = await cut(box)
        assert made.reason == ""
        assert [part.kinds for part in made.parts] == [("cpu", "openvino"), ("cpu",), ("cpu", "openvino")]
        feeds = {"x": np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)}
        cpu = OnnxSessions(1)
        there = await run_parts(box, variant, feeds, {"cpu": cpu, "openvino": sessions_of("openvino", 1, 1)})
        whole = cpu.load(await box.builds.open_build(build_id(variant.content_sha256, "cpu")))
        apart = np.abs(there["y"] - cpu.run(whole, feeds, None)["y"])
        assert (apart <= 1.01 * STEP * np.abs(LAST).sum(axis=0)).all()


async def test_model_deleted_while_network_is_cut_leaves_no_files(box: Parts, tmp_path: Path) -> None:
    """The parts of the network are not finished."""
    await imported(box, asked_for(net(tmp_path)))
    box.measure.gate.clear()
    asked_before = len(box.measure.tried_forms)
    await until(lambda: len(box.measure.tried_forms) > asked_before)
    await box.deletion.delete("default/net")
    box.measure.gate.set()
    await until(lambda: not box.files("prepared"))
    assert box.builds.uncut() == []


async def test_cut_reports_steps_and_ends_when_model_is_deleted(box: Parts, tmp_path: Path) -> None:
    """While the largest part is timed, which takes for ever here, the model is deleted: the work on it ends, and what
    comes next is cut.
    """
    await imported(box, asked_for(net(tmp_path)))
    (content,) = {one.content_sha256 for one in await box.variants()}

    def is_cutting() -> bool:
        if box.events.of("variant being cut"):
            box.measure.gate.clear()
        return any("timing" in str(one["step"]) for one in box.events.of("variant being cut"))

    await until(is_cutting)
    steps = [one["step"] for one in box.events.of("variant being cut")]
    assert steps[:3] == ["taking it apart", "asking npu for 3 sorts of operators", "cutting it"]
    assert steps[-1] == "timing the largest part on cpu"
    assert [(one.kind, one.state) for one in box.importer.awaited(content)] == [("npu", "measuring")]
    async with asyncio.timeout(120):
        await box.deletion.delete("default/net")
    box.measure.gate.set()
    assert box.importer.awaited(content) == []
    await imported(box, asked_for(net(tmp_path)))
    _, found = await cut(box)
    assert found.parts
    assert not list((box.store.state_dir / "prepared").glob("*/tmp-*"))


async def test_cut_of_network_ends_at_time_limit_of_child(tmp_path: Path) -> None:
    """All of its children together; nothing of it stays."""
    async with parts(tmp_path / "state", others=[OTHER], measure=refusing(), options=OPTIONS) as box:
        await imported(box, asked_for(net(tmp_path)))
        variant, _ = await cut(box)
        tools = box.importer.tools
        hasty = replace(tools, options=replace(tools.options, limits=replace(tools.options.limits, wall_s=0.01)))
        variants = await box.store.models.variants_of(variant.content_sha256)
        path = box.store.blobs.path(variant.content_sha256)
        with pytest.raises(TimeoutError):
            await Cutting(hasty, variants, path).cut()
        assert not list((tmp_path / "state/prepared").glob("*/tmp-*"))
