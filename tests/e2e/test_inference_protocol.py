"""The official client of the Open Inference Protocol against a real box: health, metadata, repository, statistics and infer."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from appliance.client import Client
from appliance.zoo import toys
from tests.e2e.server import Server

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def uploaded(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A box with an adder of tenant `default` and a digits net of tenant `second`."""
    folder = tmp_path_factory.mktemp("models")
    with server.client() as client:
        _import(client, toys.tiny_add(folder / "add.onnx"), "add", "tensor")
        client.create_tenant("second")
    with server.client(tenant="second") as client:
        _import(client, toys.digits(folder / "digits").model, "digits", "image-classification")
    return server


@pytest.fixture
def client(uploaded: Server) -> Iterator[triton.InferenceServerClient]:
    """The official client; its per-call headers carry the key."""
    client = triton.InferenceServerClient(uploaded.url.removeprefix("http://"))
    yield client
    client.close()


@pytest.fixture
def headers(uploaded: Server) -> dict[str, str]:
    """Fresh for every test: the client writes into the mapping it is given."""
    return {"Authorization": f"Bearer {uploaded.admin_key}"}


def test_health_and_metadata(client: triton.InferenceServerClient, headers: dict[str, str]) -> None:
    """Probes need no key; metadata names inputs and outputs, and versions are variants."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata("add", headers=headers)
    assert metadata["inputs"] == [
        {"name": "A", "datatype": "FP32", "shape": [-1, 4]},
        {"name": "B", "datatype": "FP32", "shape": [-1, 4]},
    ]
    assert "fp32" in metadata["versions"]
    assert client.is_model_ready("add", "fp32", headers=headers)
    assert not client.is_model_ready("add", "fp64", headers=headers)


@pytest.mark.parametrize("is_binary", [True, False])
def test_infer(client: triton.InferenceServerClient, headers: dict[str, str], is_binary: bool) -> None:
    """Binary and JSON tensors give the same sum, with a request id, a timeout and a priority."""
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    answer = client.infer(
        "add",
        _inputs({"A": values, "B": 2 * values}, is_binary),
        outputs=[triton.InferRequestedOutput("SUM", binary_data=is_binary)],
        headers=headers,
        request_id="seven",
        timeout=5_000_000,
        priority=1,
    )
    assert answer.get_response()["id"] == "seven"
    np.testing.assert_array_equal(answer.as_numpy("SUM"), 3 * values)


def test_infer_by_version(client: triton.InferenceServerClient, headers: dict[str, str]) -> None:
    """Naming the version pins the variant; the answer says which one ran."""
    zeros = np.zeros((1, 4), np.float32)
    answer = client.infer("add", _inputs({"A": zeros, "B": zeros}), model_version="fp32", headers=headers)
    assert answer.get_response()["model_version"] == "fp32"


def test_errors_are_the_protocols(client: triton.InferenceServerClient, headers: dict[str, str]) -> None:
    """A wrong shape, a wrong type, an unknown model and a missing key are errors that the client can read."""
    wrong_shape = _inputs({"A": np.zeros((1, 5), np.float32), "B": np.zeros((1, 4), np.float32)})
    with pytest.raises(InferenceServerException, match=r"input 'A' has shape \[1, 5\]"):
        client.infer("add", wrong_shape, headers=dict(headers))
    wrong_type = _inputs({"A": np.zeros((1, 4), np.int64), "B": np.zeros((1, 4), np.float32)})
    with pytest.raises(InferenceServerException, match="FP32"):
        client.infer("add", wrong_type, headers=dict(headers))
    right = _inputs({"A": np.zeros((1, 4), np.float32), "B": np.zeros((1, 4), np.float32)})
    with pytest.raises(InferenceServerException, match="no application 'nothing'"):
        client.infer("nothing", right, headers=dict(headers))
    with pytest.raises(InferenceServerException, match="Authorization"):
        client.infer("add", right)


def test_unload_and_load(client: triton.InferenceServerClient, headers: dict[str, str]) -> None:
    """An explicit unload makes the model unavailable until it is loaded; its statistics survive."""
    zeros = np.zeros((1, 4), np.float32)
    client.infer("add", _inputs({"A": zeros, "B": zeros}), headers=dict(headers))
    before = client.get_inference_statistics("add", headers=headers)["model_stats"][0]["inference_count"]
    client.unload_model("add", headers=headers)
    assert not client.is_model_ready("add", headers=headers)
    with pytest.raises(InferenceServerException, match="not available"):
        client.infer("add", _inputs({"A": zeros, "B": zeros}), headers=dict(headers))
    states = {row["name"]: row["state"] for row in client.get_model_repository_index(headers=headers)}
    assert states["add"] == "UNAVAILABLE"
    client.load_model("add", headers=headers)
    client.infer("add", _inputs({"A": zeros, "B": zeros}), headers=dict(headers))
    after = client.get_inference_statistics("add", headers=headers)["model_stats"][0]["inference_count"]
    assert after == before + 1


def test_tenants_do_not_see_each_other(
    uploaded: Server, client: triton.InferenceServerClient, headers: dict[str, str]
) -> None:
    """Another tenant's model is exactly as unknown as one that does not exist, and stands in no index."""
    assert [row["name"] for row in client.get_model_repository_index(headers=headers)].count("digits") == 0
    with pytest.raises(InferenceServerException) as foreign:
        client.get_model_metadata("digits", headers=headers)
    with pytest.raises(InferenceServerException) as unknown:
        client.get_model_metadata("digitz", headers=headers)
    assert str(foreign.value).replace("digits", "digitz") == str(unknown.value)
    acting = {**headers, "X-Tenant": "second"}
    assert client.get_model_metadata("digits", headers=acting)["name"] == "digits"


def _import(client: Client, path: Path, name: str, task: str) -> None:
    job = client.upload_model(path, name, task)
    assert [one.state for one in client.follow_job(job.id)][-1] == "done"


def _inputs(arrays: dict[str, np.ndarray], is_binary: bool = True) -> list[triton.InferInput]:
    words = {"float32": "FP32", "int64": "INT64"}
    inputs = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, list(array.shape), words[str(array.dtype)])
        tensor.set_data_from_numpy(array, binary_data=is_binary)
        inputs.append(tensor)
    return inputs
