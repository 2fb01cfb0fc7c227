"""A box with two kinds of processors on the same cores: every model is measured on both, and either answers alike."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from appliance.client import Client
from tests import toys
from tests.e2e.polling import until
from tests.e2e.server import Server, brought, running_server

pytestmark = [
    pytest.mark.nightly("a server with two kinds of processors"),
    pytest.mark.usefixtures("processes", "ports"),
    pytest.mark.timeout(400),
]
BOTH = json.dumps([{"kind": "cpu"}, {"kind": "openvino"}])
IMAGE = np.random.default_rng(1).standard_normal((1, 3, 64, 64)).astype(np.float32)
ASKED = {
    "inputs": [{"name": "image", "shape": list(IMAGE.shape), "datatype": "FP32", "data": IMAGE.ravel().tolist()}],
    "parameters": {"binary_data_output": False},
}


def _asked(server: Server, variant: str) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {server.admin_key}"}
    answer = httpx.post(
        f"{server.url}/v2/models/net/versions/{variant}/infer", json=ASKED, headers=headers, timeout=120
    )
    assert answer.status_code == 200, answer.text
    outputs: list[dict[str, Any]] = answer.json()["outputs"]
    return outputs


def _is_where_it_serves(client: Client, name: str) -> bool:
    """Whether a variant of `net` is in memory on the kind that it is said to serve on. Asks for it first: another
    variant may have taken its place. Input sizes of one network share their build, which bears the name of one of them.
    """
    client.load_application("net", name)
    variants = {variant.name: variant for variant in client.model("net").variants}
    content = variants[name].content_sha256
    alike = [build for build in client.memory().builds if variants[build.variant].content_sha256 == content]
    return variants[name].serves_on in {build.build.split("@")[1] for build in alike if build.state == "resident"}


def test_model_is_profiled_on_both_kinds_and_serves_on_the_cheaper(tmp_path: Path) -> None:
    """Which is shown; started with one kind only, the box answers the same."""
    with running_server(tmp_path / "state", APPLIANCE_PROCESSORS=BOTH) as server:
        with server.client() as client:
            assert [one.kind for one in client.processors()] == ["cpu", "openvino"]
            until(lambda: client.processors()[1].state == "serving", "its probe", 120)
            net = toys.conv_net(tmp_path / "net.onnx", 1.0)  # how int8 is rounded depends on the processor
            brought(client, net, "net", "image-classification", metadata={"precisions": []})
            until(lambda: len(client.model("net").variants[0].profiles) == 2, "its profile on openvino", 240)
            variant = client.model("net").variants[0]
            first = variant.profiles[0]
            assert variant.profile is not None
            assert variant.profile.latencies == [row for row in first.latencies if row.concurrency == 1]
            assert variant.serves_on in ("cpu", "openvino")
            assert variant.awaited == []
            assert variant.serving_profile is not None
            assert all(row.p50_ms > 0 for profile in variant.profiles for row in profile.latencies)
            answered = _asked(server, variant.name)
            until(partial(_is_where_it_serves, client, variant.name), "its build on the kind that it serves on")
        server.stop()
        server.start_again()
        with server.client() as client:  # it has passed its probe before
            assert [(one.state, one.reason) for one in client.processors()] == [("serving", "")] * 2
        server.stop()
        server.environment.pop("APPLIANCE_PROCESSORS")
        server.start_again()
        with server.client() as client:
            assert [one.kind for one in client.processors()] == ["cpu"]
            again = _asked(server, variant.name)
    for one, other in zip(answered, again, strict=True):
        assert np.allclose(one["data"], other["data"], atol=1e-2)  # it may compute in bf16, within that
