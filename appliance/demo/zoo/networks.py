"""A network of the zoo as an upload: converted to ONNX where it comes in another format, freed of fixed sizes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import version_converter

from appliance.demo.zoo import efficientnet, graphs, tfjs, toys
from appliance.demo.zoo.catalogue import Recipe


def write(recipe: Recipe, path_of: Callable[[str], Path], folder: Path) -> None:
    """Write model.onnx, metadata.json and tokenizer.json of `recipe`; `path_of` a file of a package may raise."""
    folder.mkdir()
    model, metadata = folder / "model.onnx", {"task": recipe.task, **recipe.metadata}
    source = path_of(recipe.model) if recipe.model else None
    if source is None:
        graphs.save(toys.digits_model(toys.drawn_numerals()), model)
        metadata |= toys.DIGITS_METADATA
    elif source.suffix == ".json":
        sides = {name: [tfjs.TensorSide(*side) for side in recipe.tfjs[name]] for name in ("inputs", "outputs")}
        graphs.save(tfjs.convert(source, **sides, scales=recipe.tfjs.get("scales", ())), model)
    elif source.suffix == ".pth":
        graphs.save(efficientnet.build(source), model)
    elif recipe.is_freed:
        graphs.save(_freed(onnx.load(source)), model)
    else:
        shutil.copyfile(source, model)
    if "imagenet" in recipe.needs:
        names = json.loads(path_of("imagenet/imagenet1k_label_to_names.json").read_text(encoding="utf-8"))
        metadata["labels"] = [names[str(index)] for index in range(len(names))]
    if "tokenizer" in recipe.needs:
        shutil.copyfile(path_of("tokenizer/tokenizer.json"), folder / "tokenizer.json")
    (folder / "metadata.json").write_text(json.dumps(metadata, ensure_ascii=False, indent=1), encoding="utf-8")


def _freed(model: onnx.ModelProto) -> onnx.ModelProto:
    """CenterFace with free batch, height and width (sides multiple of 32); maps `heat`, `scale`, `offset`, `landmarks`
    at stride 4.

    The file declares 10x3x32x32 but is fully convolutional, lists weights among its inputs and carries unused counters.
    """
    graph = model.graph
    used = {value for node in graph.node for value in node.input}
    weights = {tensor.name for tensor in graph.initializer}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    (image,) = (value for value in graph.input if value.name not in weights)
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.append(image)
    names = dict(zip((value.name for value in graph.output), ("heat", "scale", "offset", "landmarks"), strict=True))
    names[image.name] = "image"
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
    for side in (*graph.input, *graph.output, *graph.value_info):
        side.name = names.get(side.name, side.name)
    for side, (rows, columns) in ((graph.input[0], "HW"), *((value, ("rows", "columns")) for value in graph.output)):
        for axis, free in ((0, "N"), (2, rows), (3, columns)):
            side.type.tensor_type.shape.dim[axis].dim_param = free
    model.ir_version = graphs.IR_VERSION
    newer = version_converter.convert_version(model, graphs.OPSET)
    newer.ir_version = graphs.IR_VERSION
    return graphs.tidied(newer)
