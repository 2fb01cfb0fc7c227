"""Start of the service with 7 imported models: process start to first answered request, and what the idle and the used
process hold in memory.

Asked: first answer ≤ 2.5 s; nothing loaded ≤ 160 MB; after loading and unloading 7 models ≤ 25 MB above that. Memory as
Pss.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np

from appliance.demo.zoo import toys
from benchmarks import _box as boxes

ROUNDS = 5
MODELS: dict[str, Callable[[Path], Path]] = {
    "tiny": toys.tiny_add,
    "squeezenet": toys.squeezenet,
    "shufflenet": toys.shufflenet,
    "resnet50": toys.resnet50,
    "conv5": lambda path: toys.conv_net(path, 5),
    "conv20": lambda path: toys.conv_net(path, 20),
    "conv40": lambda path: toys.conv_net(path, 40),
}


def main() -> None:
    """Print the figures of each round and their medians."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        _import(state, Path(folder))
        starts, idle, grown = [], [], []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            with boxes.box(state) as box, box.http() as http:
                _infer(http, "squeezenet")
                starts.append(time.perf_counter() - begin)
                _unload(http)
                idle.append(box.pss_mb())
                for name in MODELS:
                    http.post(f"/v2/repository/models/{name}/load").raise_for_status()
                    _infer(http, name)
                loaded = box.pss_mb()
                _unload(http)
                grown.append(box.pss_mb() - idle[-1])
            print(
                f"first answer {starts[-1]:.2f} s   idle {idle[-1]:.0f} MB   loaded {loaded:.0f} MB   "
                f"after unloading +{grown[-1]:.1f} MB"
            )
    print(f"median first answer {statistics.median(starts):.2f} s (asked ≤ 2.5)")
    print(f"median idle {statistics.median(idle):.0f} MB (asked ≤ 160)")
    print(f"median growth after load and unload {statistics.median(grown):.1f} MB (asked ≤ 25)")


def _import(state: Path, folder: Path) -> None:
    with boxes.box(state) as box:
        for name, make in MODELS.items():
            path = make(folder / f"{name}.onnx")
            boxes.await_job(box, boxes.upload_large(box, name, path, precisions=["fp32"]))


def _infer(http: httpx.Client, name: str) -> None:
    inputs = http.get(f"/v2/models/{name}").json()["inputs"]
    body, headers = boxes.infer_body({i["name"]: np.zeros([max(1, d) for d in i["shape"]], np.float32) for i in inputs})
    http.post(f"/v2/models/{name}/infer", content=body, headers=headers).raise_for_status()


def _unload(http: httpx.Client) -> None:
    for name in MODELS:
        http.post(f"/v2/repository/models/{name}/unload").raise_for_status()


if __name__ == "__main__":
    main()
