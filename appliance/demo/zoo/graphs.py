"""Small tools on ONNX graphs that several recipes share: write, tidy with ONNX Runtime, rename.

Every file written here has IR 10 and an opset that every supported runtime loads.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from onnx import helper

IR_VERSION = 10
OPSET = 17


def model_of(graph: onnx.GraphProto, opset: int = OPSET) -> onnx.ModelProto:
    """A model around `graph`, not checked yet."""
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets, producer_name="appliance.demo.zoo")


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Check `model` and write it as one file at `path`, whose folder is made."""
    onnx.checker.check_model(model, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def tidied(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same function after ONNX Runtime's basic rewriting: constants, biases, batch norms and transposes folded,
    `Constant` nodes gone.

    Nothing in it belongs to one machine (that is what the levels above `basic` would add). Metadata is kept.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.onnx", Path(folder) / "out.onnx"
        onnx.save(model, source)
        options.optimized_model_filepath = str(target)
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        done = onnx.load(target)
    kept = model_of(done.graph, next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")))
    helper.set_model_props(kept, {entry.key: entry.value for entry in model.metadata_props})
    return kept


def free_dimensions(value: onnx.ValueInfoProto, names: dict[int, str]) -> None:
    """Make axes of a graph input or output symbolic, in place; an earlier size or name is replaced."""
    for axis, name in names.items():
        dimension = value.type.tensor_type.shape.dim[axis]
        dimension.ClearField("dim_value")
        dimension.dim_param = name
