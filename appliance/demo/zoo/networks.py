"""A network of the zoo as an upload: converted to ONNX where it comes in another format, freed of fixed sizes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import numpy_helper, version_converter

from appliance.demo.zoo import efficientnet, graphs, tfjs, toys
from appliance.demo.zoo.catalogue import Recipe

FREED = {"heat": 1, "scale": 2, "offset": 2, "landmarks": 10}
"""The maps of CenterFace, at stride 4, and their channels."""


def write(recipe: Recipe, path_of: Callable[[str], Path], folder: Path) -> None:
    """Write model.onnx, metadata.json and tokenizer.json of `recipe`; `path_of` a file of a package may raise."""
    model, metadata = folder / "model.onnx", {"task": recipe.task, **recipe.metadata}
    source = path_of(recipe.model) if recipe.model else None
    if source is None:
        graphs.save(toys.digits_model(toys.Numerals()), model)
    elif recipe.tfjs:
        graphs.save(tfjs.convert(source, **recipe.tfjs), model)
    elif source.suffix == ".pth":
        graphs.save(efficientnet.build(source), model)
    elif recipe.is_freed:
        graphs.save(_freed(onnx.load(source).graph), model)
    else:
        shutil.copyfile(source, model)
    if "imagenet" in recipe.needs:
        names = json.loads(path_of("imagenet/imagenet1k_label_to_names.json").read_text(encoding="utf-8"))
        metadata["labels"] = [names[str(index)] for index in range(len(names))]
    if "tokenizer" in recipe.needs:
        shutil.copyfile(path_of("tokenizer/tokenizer.json"), folder / "tokenizer.json")
    (folder / "metadata.json").write_text(json.dumps(metadata, ensure_ascii=False, indent=1), encoding="utf-8")


def _freed(graph: onnx.GraphProto) -> onnx.ModelProto:
    """CenterFace with free batch, height and width (sides multiple of 32).

    The file declares 10x3x32x32 but is fully convolutional, lists weights among its inputs and carries unused counters.
    """
    net = graphs.Graph()
    net.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    names = {"input.1": "image", **dict(zip((value.name for value in graph.output), FREED, strict=True))}
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
        net.nodes.append(node)
    maps = {name: ("N", channels, "rows", "columns") for name, channels in FREED.items()}
    freed = net.model(graph.name, {"image": ("N", 3, "H", "W")}, maps)
    newer = version_converter.convert_version(graphs.model_of(freed.graph, opset=9), graphs.OPSET)
    newer.ir_version = graphs.IR_VERSION
    return graphs.tidied(newer)
