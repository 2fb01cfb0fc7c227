"""The state folder of a box with one application of real networks that differ in the size of their pictures, as those
of Jellyfish do: 16 of 128 to 608 pixels, 12 to 16 MB, from a few to some thirty milliseconds of one core.

Each is imported by a real box, as a model of its own, so what it takes is measured; then all become variants of one
model, with accuracies that grow with their size, for their weights are random.
"""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from appliance.clock import SystemClock
from appliance.demo.zoo import graphs
from appliance.domain.catalogue import Accuracy, Application, Prefer
from appliance.domain.jobs import ImportRequest
from appliance.domain.names import application_id, model_id, variant_id
from appliance.domain.states import JobState, VariantState
from appliance.modelstore.store.state_folder import StateFolder
from appliance.modelstore.store.store import ChangeFeed, Store
from tests.e2e.server import running_server

SIZES = tuple(range(128, 609, 32))
APPLICATION = "gate"
_WAYS, _CLASSES = 32, 10


def made(folder: Path) -> Path:
    """The state folder, made below `folder` where it is not there yet: some minutes."""
    state = folder / "state"
    if (folder / "made").exists():
        return state
    shutil.rmtree(state, ignore_errors=True)
    settings = {"APPLIANCE_GUARD__ISOLATION": "none", "APPLIANCE_POLICIES__EVICTION": "lru"}
    with running_server(state, **settings) as server, server.client() as client:
        for place, size in enumerate(SIZES):
            image = {"layout": "NCHW", "channels": "RGB", "mean": [0.0], "std": [255.0], "resize": "stretch"}
            metadata = {
                "precisions": [],
                "labels": [str(label) for label in range(_CLASSES)],
                "image": {**image, "height": size, "width": size},
            }
            file = network(folder / f"net-{size}.onnx", size, 12 + 0.25 * place)
            job = client.upload_model(file, f"net-{size}", "image-classification", metadata=metadata)
            last = [*client.follow_job(job.id)][-1]
            assert last.state == JobState.DONE, last
    asyncio.run(_join(state))
    with running_server(state, **settings) as server, server.client() as client:
        for size in SIZES:
            client.delete_application(f"net-{size}")
            client.delete_model(f"net-{size}")
    (folder / "made").touch()
    return state


def network(path: Path, size: int, megabytes: float) -> Path:
    """Three convolutions and two dense layers; `image` FP32[N, 3, size, size] to `probabilities` FP32[N, 10]. The dense
    layers fill the file up to `megabytes`, and take next to no time.
    """
    random = np.random.default_rng(size)
    wide = int(megabytes * 1e6 / 4 / (_WAYS + _CLASSES))
    shapes = {
        "w1": (16, 3, 3, 3),
        "w2": (_WAYS, 16, 3, 3),
        "w3": (_WAYS, _WAYS, 3, 3),
        "d1": (_WAYS, wide),
        "d2": (wide, _CLASSES),
    }
    net = graphs.Graph()
    for name, shape in shapes.items():
        net.constant(name, random.standard_normal(shape, np.float32) / np.float32(np.sqrt(np.prod(shape[1:]))))
    value = "image"
    for weights, stride in (("w1", 2), ("w2", 2), ("w3", 1)):
        sides = {"strides": [stride, stride], "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        value = net.add("Relu", [net.add("Conv", [value, weights], f"{weights}.conv", **sides)], f"{weights}.relu")
    value = net.add("Flatten", [net.add("GlobalAveragePool", [value], "pool")], "flat", axis=1)
    value = net.add("Relu", [net.add("MatMul", [value, "d1"], "wide")], "wide.relu")
    net.add("Softmax", [net.add("MatMul", [value, "d2"], "logits")], "probabilities", axis=1)
    answer = {"probabilities": ("N", _CLASSES)}
    return graphs.save(net.model(f"net-{size}", {"image": ("N", 3, size, size)}, answer), path)


async def _join(folder: Path) -> None:
    """The first variant of each model becomes one of a model of all."""
    state = await asyncio.to_thread(StateFolder.open, folder, reserve_bytes=0)
    store = Store(state, SystemClock(), ChangeFeed())
    await asyncio.to_thread(store.recover)
    try:
        all_id = model_id("default", "sizes")
        first = await store.models.get(model_id("default", f"net-{SIZES[-1]}"))
        await store.imports.accept(
            "sizes", ImportRequest("default", "sizes", "unused", task=first.task, application="")
        )
        for place, size in enumerate(SIZES):
            (variant,) = (await store.models.get(model_id("default", f"net-{size}"))).variants
            name = f"v{size}"
            accuracy = Accuracy(40.0 + 50.0 * (1.0 - 0.85**place), "top-1", "labels", 1000)
            joined = replace(
                variant, id=variant_id(all_id, name), model_id=all_id, name=name, number=0, accuracy=accuracy
            )
            joined = replace(joined, height=size, width=size, state=VariantState.READY)
            await store.models.put_variant(joined)
        for moved in (JobState.RUNNING, JobState.DONE):
            await store.jobs.update("sizes", state=moved)
        made = Application(application_id("default", APPLICATION), "default", APPLICATION, all_id)
        await store.applications.create(replace(made, prefer=Prefer.ACCURACY))
    finally:
        store.close()
