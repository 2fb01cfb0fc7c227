"""What becomes of good and of hostile ONNX files."""

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from appliance.domain.catalogue import ImageSpec, StateSpec, TaskKind, TaskSpec
from appliance.domain.errors import BadModel
from appliance.modelstore.importing.child import ChildLimits, OnProgress, Stages
from appliance.modelstore.orders import Inspection, InspectOrder, Size
from appliance.modelstore.stages.inspect import inspect
from appliance.modelstore.stages.running import Runner, TooSlow
from tests.modelstore import networks
from tests.modelstore.stages.stage_runs import inspected, quiet, refusal

LIMITS = ChildLimits(memory_bytes=3 << 30, cpu_s=60, wall_s=60.0, nice=0)
CLASSIFICATION = TaskSpec(TaskKind.IMAGE_CLASSIFICATION, image=ImageSpec(height=64, width=64, multiple=16))


# -- good files --------------------------------------------------------------------------------------------------------


def test_inspection_describes_convolution_net_and_keeps_answers(tmp_path: Path) -> None:
    """Interface, roles of axes, family, batch, sizes and metadata are found; the copy's answers are those of the
    upload.
    """
    upload = networks.write(networks.classifier(opset=12), tmp_path)
    found = inspected(upload, tmp_path, CLASSIFICATION)
    assert (found.inputs[0].shape, found.inputs[0].datatype) == ((-1, 3, -1, -1), "FP32")
    assert found.axes == {"x": ("batch", "channel", "height", "width")}
    assert (found.family, found.weights, found.batch_max) == ("convolution", "fp32", 8)
    assert (found.opset_uploaded, found.opset) == (12, 17)
    assert found.ladder == (Size(64, 64), Size(48, 48), Size(32, 32))
    assert found.metadata_props == {"classes": "a,b,c"}
    assert found.size_bytes == os.path.getsize(found.model)
    x = np.random.default_rng(1).standard_normal((2, 3, 64, 64)).astype(np.float32)
    np.testing.assert_allclose(networks.run(found.model, x=x)[0], networks.run(upload, x=x)[0], rtol=1e-3, atol=1e-4)


def test_inspection_tells_the_labels_of_a_file_as_json(tmp_path: Path) -> None:
    """The service reads no notation of Python's."""
    made = networks.relu()
    made.metadata_props.add(key="names", value="{0: 'person', 1: 'dog'}")
    assert inspected(made, tmp_path).metadata_props == {"names": '["person","dog"]'}


def test_inspection_frees_batch_of_one_where_answers_stay_equal(tmp_path: Path) -> None:
    """Most exporters declare a batch of 1; several inputs at once are tried, and kept when the answers are the same."""
    fixed = networks.classifier()
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    fixed.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    found = inspected(fixed, tmp_path, CLASSIFICATION)
    assert (found.inputs[0].shape[0], found.outputs[0].shape[0], found.batch_max) == (-1, -1, 8)
    assert networks.run(found.model, x=np.ones((3, 3, 64, 64), np.float32))[0].shape == (3, 5)
    assert any("batches are free" in note for note in found.notes)
    flat = networks.model(
        "y = Reshape(x, one)",
        {"x": (1, 2, 2)},
        {"y": (1, 4)},
        {"one": np.array([1, -1])},
    )
    found = inspected(flat, tmp_path)
    assert (found.inputs[0].shape, found.batch_max, found.notes) == ((1, 2, 2), 1, ())


def test_inspection_keeps_batch_fixed_where_answers_depend_on_batch(tmp_path: Path) -> None:
    """A graph whose answers depend on what else is in the batch says so, whatever its shapes declare."""
    assert inspected(networks.relu(shape=(10, 4)), tmp_path).batch_max == 1
    nodes = "m = ReduceMean<keepdims=1>(x) y = Sub(x, m)"
    mixing = networks.model(nodes, {"x": ("n", 4)}, {"y": ("n", 4)})
    assert inspected(mixing, tmp_path).batch_max == 1, "the mean runs over the batch, too"


def test_inspection_finds_roles_of_token_and_state_axes(tmp_path: Path) -> None:
    """Sequences are told from batches, and a state's batch axis is found by its symbol."""
    assert inspected(networks.attention(), tmp_path).axes == {"input_ids": ("batch", "sequence")}
    nodes = "t = ReduceSum<keepdims=1>(x) next = Add(state, t) y = ReduceMean<axes=[0, 2]>(next)"
    stateful = networks.model(nodes, {"x": ("n", "l"), "state": (2, "n", 3)}, {"y": (1, "n", 1), "next": (2, "n", 3)})
    task = TaskSpec(state=(StateSpec("state", "next", (2, 1, 3)),))
    found = inspected(stateful, tmp_path, task)
    assert found.axes == {"x": ("batch", "sequence"), "state": ("", "batch", "")}
    assert found.batch_max == 1


def test_inspection_normalises_constants_weights_and_node_names(tmp_path: Path) -> None:
    """Constants become initialisers, unused ones go, weights leave the inputs, node names are unique."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    nodes = [
        helper.make_node("Constant", [], ["two"], value_float=2.0, name="same"),
        helper.make_node("MatMul", ["x", "w"], ["m"], name="same"),
        helper.make_node("Mul", ["m", "two"], ["y"], name="same"),
    ]
    made = networks.model(nodes, {"x": ("n", 4), "w": (4, 4)}, {"y": ("n", 4)}, ir=3, opset=13)
    made.graph.initializer.extend([weight, numpy_helper.from_array(np.ones(3, np.float32), "unused")])
    found = inspected(made, tmp_path)
    graph = networks.load(found.model).graph
    assert [tensor.name for tensor in found.inputs] == ["x"]
    assert "Constant" not in found.ops
    assert len({node.name for node in graph.node}) == len(graph.node)
    assert "unused" not in {tensor.name for tensor in graph.initializer}


def test_inspection_converts_newer_opset_to_supported_opset(tmp_path: Path) -> None:
    """A file from today's onnx package, which ONNX Runtime refuses as it is, can be imported."""
    found = inspected(networks.relu(opset=onnx.defs.onnx_opset_version(), ir=onnx.IR_VERSION), tmp_path)
    assert found.opset == 21
    assert found.ir_uploaded == onnx.IR_VERSION
    assert any("converted to 21" in note for note in found.notes)


def test_inspection_takes_in_external_data_beside_model(tmp_path: Path) -> None:
    """Weights in a file of their own end up in the normalised file."""
    made = networks.classifier()
    stored = next(tensor for tensor in made.graph.initializer if tensor.name == "w3")
    (tmp_path / "w3.bin").write_bytes(b"head" + stored.raw_data)
    x = np.ones((1, 3, 32, 32), np.float32)
    expected = networks.run(networks.write(made, tmp_path, "plain.onnx"), x=x)[0]
    found = inspected(networks.with_external(made, "w3", "w3.bin", offset=4), tmp_path)
    assert found.files == (found.model,)
    np.testing.assert_allclose(networks.run(found.model, x=x)[0], expected, rtol=1e-3, atol=1e-5)


def test_inspection_keeps_weights_of_large_network_in_separate_file(tmp_path: Path) -> None:
    """Above the limit nothing is rewritten: a small file for the graph, one for the weights, the same answers."""
    made = networks.classifier()
    x = np.ones((1, 3, 32, 32), np.float32)
    expected = networks.run(networks.write(made, tmp_path, "plain.onnx"), x=x)[0]
    found = inspected(made, tmp_path, rewrite_bytes_max=1000)
    assert [os.path.basename(file) for file in found.files] == ["model.onnx", "model.bin"]
    assert os.path.getsize(found.model) < 10_000
    assert found.size_bytes == sum(map(os.path.getsize, found.files))
    assert found.weights_bytes == inspected(made, tmp_path / "small").weights_bytes
    np.testing.assert_allclose(networks.run(found.model, x=x)[0], expected, rtol=1e-3, atol=1e-5)


def test_inspection_unfolds_local_functions(tmp_path: Path) -> None:
    """Functions of a domain of the model's own are no custom operators."""
    function = helper.make_function(
        "mine", "Twice", ["a"], ["b"], networks.nodes_of("b = Add(a, a)"), [helper.make_opsetid("", 17)]
    )
    made = networks.model("y = mine.Twice(x)", {"x": (1, 4)}, {"y": (1, 4)})
    made.functions.append(function)
    found = inspected(made, tmp_path)
    assert found.ops == {"Add": 1}


def test_inspection_leaves_out_input_sizes_that_do_not_run(tmp_path: Path) -> None:
    """A graph that only looks free in height and width keeps the size that works."""
    nodes = "f = Flatten(x) y = MatMul(f, w)"
    weights = {"w": np.ones((3 * 64 * 64, 2), np.float32)}
    made = networks.model(nodes, {"x": ("n", 3, "h", "w_")}, {"y": ("n", 2)}, weights)
    found = inspected(made, tmp_path, CLASSIFICATION)
    assert found.ladder == (Size(64, 64),)
    assert [note.split(":")[0] for note in found.notes] == ["no input size 48x48", "no input size 32x32"]


def test_inspection_sorts_nodes_and_refuses_circles(tmp_path: Path) -> None:
    """Quantisers write graphs whose nodes are out of order; a graph that waits for itself is no graph."""
    made = networks.classifier()
    nodes = list(made.graph.node)[::-1]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    found = inspected(made, tmp_path)
    names = [output for node in networks.load(found.model).graph.node for output in node.output]
    assert names[-1] == "y"
    circle = "a = Add(x, b) b = Relu(a)"
    assert "circle" in refusal(networks.model(circle, {"x": (1, 4)}, {"b": (1, 4)}), tmp_path)


# -- hostile files -----------------------------------------------------------------------------------------------------


def test_truncated_model_file_is_refused_at_any_length(tmp_path: Path) -> None:
    """No cut of a file crashes; all are refused, but for cuts that lose nothing the network needs."""
    whole = networks.classifier().SerializeToString()
    graph_end = len(whole) - 100
    for cut in [*range(0, 200), *range(200, graph_end, 977)]:
        path = tmp_path / "cut.onnx"
        path.write_bytes(whole[:cut])
        assert re.search("truncated|empty|no ONNX", refusal(path, tmp_path))


def test_damaged_model_file_never_crashes_inspection(tmp_path: Path) -> None:
    """Flipped bytes in the structure are refused or harmless, never an error of another kind."""
    whole = bytearray(networks.relu().SerializeToString())
    for position in range(len(whole)):
        path = tmp_path / "damaged.onnx"
        path.write_bytes(bytes(whole[:position]) + bytes([whole[position] ^ 0x15]) + bytes(whole[position + 1 :]))
        with contextlib.suppress(BadModel):
            inspected(path, tmp_path)


@pytest.mark.parametrize(
    "junk", [b"", b"hello world, this is no model" * 9, bytes(range(256)) * 40, b"PK\x03\x04" + bytes(99)]
)
def test_garbage_model_file_is_refused(tmp_path: Path, junk: bytes) -> None:
    """Other files get a plain answer."""
    (tmp_path / "junk.onnx").write_bytes(junk)
    assert re.search("empty|no ONNX", refusal(tmp_path / "junk.onnx", tmp_path))


def test_model_of_absurd_shapes_is_refused_before_allocation(tmp_path: Path) -> None:
    """Declared, stored and computed sizes are estimated from the graph alone."""
    assert "9.3 GiB" in refusal(networks.relu(shape=(50_000, 50_000)), tmp_path)
    stored = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40])
    made = networks.model("y = Add(x, w)", {"x": (1,)}, {"y": (1,)})
    made.graph.initializer.append(stored)
    assert "4096.0 GiB" in refusal(made, tmp_path)
    stored.dims[:] = [-4]
    made.graph.initializer[0].CopyFrom(stored)
    assert "negative dimension" in refusal(made, tmp_path)
    nodes = "c = ConstantOfShape(s) r = ReduceSum<keepdims=0>(c) y = Add(x, r)"
    computed = networks.model(nodes, {"x": (1,)}, {"y": (1,)}, {"s": np.array([50_000, 50_000])})
    assert "9.3 GiB" in refusal(computed, tmp_path)


@pytest.mark.parametrize(
    "location", ["../../etc/passwd", "/etc/passwd", "a/../../x", "", "..\\x", "link", "none", "short"]
)
def test_external_data_outside_model_folder_is_refused(tmp_path: Path, location: str) -> None:
    """Parents, absolute paths, links and files that do not fit are refused with the tensor's name."""
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "short").write_bytes(b"abc")
    made = networks.with_external(networks.classifier(), "w3", location)
    assert "external data" in refusal(made, tmp_path)


def test_external_data_of_node_attributes_is_checked(tmp_path: Path) -> None:
    """A path may hide in a Constant inside a branch."""
    made = networks.nested(1)
    hidden = made.graph.node[0].attribute[0].g.node.add()
    hidden.op_type = "Constant"
    hidden.output.append("c")
    tensor = hidden.attribute.add()
    tensor.name, tensor.type = "value", onnx.AttributeProto.TENSOR
    tensor.t.data_type, tensor.t.data_location = TensorProto.FLOAT, TensorProto.EXTERNAL
    entry = tensor.t.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    assert "outside" in refusal(made, tmp_path)


def test_custom_operators_are_refused(tmp_path: Path) -> None:
    """Unknown domains, unknown operators, and ONNX Runtime's operators that are not arithmetic."""
    for domain, operator in (
        ("evil", "Relu"),
        ("com.microsoft", "Sampling"),
        ("com.microsoft.nchwc", "Conv"),
        ("", "Nope"),
    ):
        made = networks.model([helper.make_node(operator, ["x"], ["y"], domain=domain)], {"x": (1, 4)}, {"y": (1, 4)})
        assert operator in refusal(made, tmp_path)


def test_deep_nests_and_exploding_functions_are_refused(tmp_path: Path) -> None:
    """Structure is bounded before anything walks it."""
    assert inspected(networks.nested(3), tmp_path).outputs[0].name == "y3"
    assert "nested deeper" in refusal(networks.nested(12), tmp_path)
    (tmp_path / "deep.onnx").write_bytes(networks.nested_bytes(60))
    assert "truncated or damaged" in refusal(tmp_path / "deep.onnx", tmp_path)  # protobuf's own limit
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    made = networks.model("y = f.F30(x)", {"x": (1, 4)}, {"y": (1, 4)})
    for level in range(31):
        called = f"f.F{level - 1}" if level else "Relu"
        nodes = networks.nodes_of(f"m = {called}(a) b = {called}(m)")
        made.functions.append(helper.make_function("f", f"F{level}", ["a"], ["b"], nodes, imports))
    assert "unfolds to more than" in refusal(made, tmp_path)
    made.functions[0].node[0].op_type, made.functions[0].node[0].domain = "F30", "f"
    assert "calls itself" in refusal(made, tmp_path)


def test_model_whose_tensors_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    """Sequences, missing shapes, no outputs."""
    nodes = "y = SequenceConstruct(x)"
    made = networks.model(nodes, {"x": (1,)}, {"y": (1,)})
    made.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None))
    assert "is a sequence, which answers cannot carry" in refusal(made, tmp_path)
    shapeless = networks.relu()
    shapeless.graph.input[0].type.tensor_type.ClearField("shape")
    assert "does not declare its shape" in refusal(shapeless, tmp_path)
    without = networks.relu()
    del without.graph.output[:]
    assert "no output" in refusal(without, tmp_path)


def test_endless_run_ends_at_processor_time_limit(tmp_path: Path) -> None:
    """A Loop that never ends costs the seconds allowed, no more."""
    runner = Runner(networks.write(networks.endless(), tmp_path))
    with pytest.raises(TooSlow, match="more than 1 s of processor time"):
        runner.run({"x": np.ones((1, 4), np.float32)}, cpu_seconds_max=1.0)


async def in_a_child(
    order: InspectOrder, limits: ChildLimits = LIMITS, on_progress: OnProgress | None = None
) -> Inspection:
    with contextlib.closing(Stages()) as stages:
        return await stages.run(order, limits=limits, on_progress=on_progress)


@pytest.mark.nightly("waits for a limit")
@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
async def test_inspection_of_endless_loop_ends_at_wall_limit(tmp_path: Path) -> None:
    """The wall limit holds for whatever does not end by itself."""
    order = InspectOrder(networks.write(networks.endless(), tmp_path), str(tmp_path / "out"))
    with pytest.raises(BadModel, match="took longer than 3 s"):
        await in_a_child(order, limits=replace(LIMITS, wall_s=3.0))


@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
async def test_inspection_of_memory_bomb_ends_at_memory_limit(tmp_path: Path) -> None:
    """Sizes that no estimate sees coming meet the memory limit."""
    nodes = "r = Add(times, k) t = Tile(x, r) y = ReduceSum<keepdims=0>(t)"
    weights = {"k": np.array([28_000, 1_750], np.int64)}  # 3.1 GB of 1 x 16 floats
    types = {"times": int(TensorProto.INT64)}
    bomb = networks.model(nodes, {"x": ("n", "m"), "times": (2,)}, {"y": ()}, weights, types=types)
    order = InspectOrder(networks.write(bomb, tmp_path), str(tmp_path / "out"))
    with pytest.raises(BadModel, match=r"needs more than 3\.0 GiB of memory"):
        await in_a_child(order)


@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
async def test_inspection_in_child_equals_inspection_in_process(tmp_path: Path) -> None:
    """What crosses the pipe is what the function returns."""
    upload = networks.write(networks.classifier(), tmp_path)
    order = InspectOrder(upload, str(tmp_path / "out"), CLASSIFICATION)
    shares: list[float] = []
    found = await in_a_child(order, on_progress=lambda share, message: shares.append(share))
    here = inspect(order, quiet)
    assert replace(found, run_ms=0.0) == replace(here, run_ms=0.0)
    assert shares == sorted(shares)
    assert len(shares) >= 4
