"""The official client of the Open Inference Protocol against a real box: health, metadata, repository, statistics
and infer.
"""

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from appliance.api.http.bounded_protocol import BODY_WATER_BYTES, STRANGER_WATER_BYTES
from tests.e2e.server import Server

pytestmark = pytest.mark.usefixtures("processes", "ports")
SEND_WINDOW_AT = 228
"""Of `tcpi_snd_wnd` in Linux' `struct tcp_info`."""


@pytest.fixture
def client(furnished_server: Server) -> Iterator[triton.InferenceServerClient]:
    """The official client; its per-call headers carry the key."""
    client = triton.InferenceServerClient(furnished_server.url.removeprefix("http://"))
    yield client
    client.close()


@pytest.fixture
def headers(furnished_server: Server) -> dict[str, str]:
    """Fresh for every test: the client writes into the mapping it is given."""
    return {"Authorization": f"Bearer {furnished_server.admin_key}"}


@contextmanager
def connected(server: Server) -> Iterator[tuple[socket.socket, IO[bytes]]]:
    """A connection, and what comes over it."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=120) as connection, connection.makefile("rb") as answers:
        yield connection, answers


def test_triton_client_reads_health_and_metadata(client: triton.InferenceServerClient, headers: dict[str, str]) -> None:
    """Probes need no key; metadata names inputs and outputs, and versions are variants."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata("adding", headers=headers)
    assert metadata["inputs"] == [
        {"name": "A", "datatype": "FP32", "shape": [-1, 4]},
        {"name": "B", "datatype": "FP32", "shape": [-1, 4]},
    ]
    assert metadata["variants"][metadata["versions"][0]] == "fp32"
    assert client.is_model_ready("adding", "fp32", headers=headers)
    assert client.is_model_ready("adding", metadata["versions"][0], headers=headers)
    assert not client.is_model_ready("adding", "fp64", headers=headers)


@pytest.mark.parametrize("is_binary", [True, False])
def test_triton_client_infers_with_binary_and_json_tensors(
    client: triton.InferenceServerClient, headers: dict[str, str], is_binary: bool
) -> None:
    """With a request id, a timeout and a priority."""
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    answer = client.infer(
        "adding",
        _inputs({"A": values, "B": 2 * values}, is_binary),
        outputs=[triton.InferRequestedOutput("SUM", binary_data=is_binary)],
        headers=headers,
        request_id="seven",
        timeout=100_000_000,
        priority=1,
    )
    assert answer.get_response()["id"] == "seven"
    np.testing.assert_array_equal(answer.as_numpy("SUM"), 3 * values)


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("is_binary", [True, False])
def test_triton_client_infers_with_compressed_bodies(
    client: triton.InferenceServerClient, headers: dict[str, str], packing: str, rows: int, is_binary: bool
) -> None:
    """The next request on the connection is read as another request."""
    for start in (0, 7):
        values = np.arange(start, start + 4 * rows, dtype=np.float32).reshape(rows, 4)
        inputs = _inputs({"A": values, "B": values}, is_binary)
        answer = client.infer("adding", inputs, headers=dict(headers), request_compression_algorithm=packing)
        np.testing.assert_array_equal(answer.as_numpy("SUM"), 2 * values)


def test_infer_version_pins_the_variant(client: triton.InferenceServerClient, headers: dict[str, str]) -> None:
    """By number or by name; the answer says which variant ran."""
    zeros = np.zeros((1, 4), np.float32)
    for version in ("fp32", "1"):
        answer = client.infer("adding", _inputs({"A": zeros, "B": zeros}), model_version=version, headers=headers)
        assert answer.get_response()["model_version"] == "1"
        assert answer.get_response()["parameters"] == {"variant": "fp32", "evidence": "original"}


def test_infer_errors_have_the_format_of_the_protocol(
    client: triton.InferenceServerClient, headers: dict[str, str]
) -> None:
    """A wrong shape, a wrong type, an unknown model and a missing key are errors that the client can read."""
    wrong_shape = _inputs({"A": np.zeros((1, 5), np.float32), "B": np.zeros((1, 4), np.float32)})
    with pytest.raises(InferenceServerException, match=r"input 'A' has shape \[1, 5\]"):
        client.infer("adding", wrong_shape, headers=dict(headers))
    wrong_type = _inputs({"A": np.zeros((1, 4), np.int64), "B": np.zeros((1, 4), np.float32)})
    with pytest.raises(InferenceServerException, match="FP32"):
        client.infer("adding", wrong_type, headers=dict(headers))
    right = _inputs({"A": np.zeros((1, 4), np.float32), "B": np.zeros((1, 4), np.float32)})
    with pytest.raises(InferenceServerException, match="no application 'nothing'"):
        client.infer("nothing", right, headers=dict(headers))
    with pytest.raises(InferenceServerException, match="Authorization"):
        client.infer("adding", right)


def test_unloaded_model_is_unavailable_until_it_is_loaded(
    client: triton.InferenceServerClient, headers: dict[str, str]
) -> None:
    """Its statistics survive."""
    zeros = np.zeros((1, 4), np.float32)
    client.infer("adding", _inputs({"A": zeros, "B": zeros}), headers=dict(headers))
    before = client.get_inference_statistics("adding", headers=headers)["model_stats"][0]["inference_count"]
    client.unload_model("adding", headers=headers)
    assert not client.is_model_ready("adding", headers=headers)
    with pytest.raises(InferenceServerException, match="not available"):
        client.infer("adding", _inputs({"A": zeros, "B": zeros}), headers=dict(headers))
    states = {row["name"]: row["state"] for row in client.get_model_repository_index(headers=headers)}
    assert states["adding"] == "UNAVAILABLE"
    client.load_model("adding", headers=headers)
    client.infer("adding", _inputs({"A": zeros, "B": zeros}), headers=dict(headers))
    after = client.get_inference_statistics("adding", headers=headers)["model_stats"][0]["inference_count"]
    assert after == before + 1


def _inputs(arrays: dict[str, np.ndarray], is_binary: bool = True) -> list[triton.InferInput]:
    words = {"float32": "FP32", "int64": "INT64"}
    inputs = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, list(array.shape), words[str(array.dtype)])
        tensor.set_data_from_numpy(array, binary_data=is_binary)
        inputs.append(tensor)
    return inputs


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel tells nothing of its connections")
def test_receive_window_grows_for_a_connection_with_a_good_key(furnished_server: Server) -> None:
    """The window bounds what a link carries: with 128 KiB, 50 Mbit/s where an answer takes 20 ms."""
    asked = _add(furnished_server, 1, rows=20_000)  # more than the model takes, which is found out when all is read
    with connected(furnished_server) as (connection, answers):
        for _ in range(5):
            connection.sendall(asked)
            assert _answer(answers)[0] == 400
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (window,) = struct.unpack_from("I", told, SEND_WINDOW_AT)
    is_allowed = int(Path("/proc/sys/net/core/rmem_max").read_text()) >= BODY_WATER_BYTES
    assert window > (500_000 if is_allowed else 2 * STRANGER_WATER_BYTES), "the system lets nobody have more"


def test_pipelined_requests_are_answered_in_order(furnished_server: Server) -> None:
    """Quick, slow and refused requests and requests in pieces on one connection: each gets its own answer, in the order
    of sending.
    """
    asked = [_add(furnished_server, value) for value in range(40)]
    asked[7] = asked[7].replace(b"/adding/", b"/nobody/")
    asked[11] = asked[11].replace(b"Bearer ", b"Bearer x")
    asked[20] = asked[20].replace(b"POST", b"GET ").replace(b"/infer", b"      ", 1)
    with connected(furnished_server) as (connection, answers):
        whole = b"".join(asked)
        for start in range(0, len(whole), 1000):
            connection.sendall(whole[start : start + 1000])
        for index in range(len(asked)):
            status, body = _answer(answers)
            assert status == {7: 404, 11: 401}.get(index, 200), (index, body)
            if index == 20:
                assert json.loads(body)["name"] == "adding"
            elif status == 200:
                assert np.frombuffer(body[-16:], np.float32).tolist() == [index + 1.0] * 4


def test_blanks_around_inference_header_length_are_ignored(furnished_server: Server) -> None:
    """Whichever way the request is read: with a head seen before, or the first of a connection."""
    asked = _add(furnished_server, 1)
    for before, after in ((b" ", b" "), (b"", b"\t"), (b"  \t", b"  ")):
        head = b"Inference-Header-Content-Length:"
        start = asked.index(head) + len(head)
        end = asked.index(b"\r\n", start)
        said = asked[:start] + before + asked[start:end].strip() + after + asked[end:]
        with connected(furnished_server) as (connection, answers):
            for _ in range(4):
                connection.sendall(said)
                status, body = _answer(answers)
                assert (status, np.frombuffer(body[-16:], np.float32).tolist()) == (200, [2.0] * 4)


def test_infer_with_a_wrong_key_counts_as_one_failed_key(furnished_server: Server) -> None:
    """Twenty of the thirty a minute that are answered 401: a request that is answered with others asks the key ring
    once, as any other does.
    """
    with connected(furnished_server) as (connection, answers):
        for value in range(20):
            connection.sendall(_add(furnished_server, value).replace(b"Bearer ", b"Bearer x"))
            assert _answer(answers)[0] == 401


def test_concurrent_connections_each_get_their_own_answer(furnished_server: Server) -> None:
    """Answers of shared runs are not mixed up; a caller that has gone takes no other caller along."""
    with ExitStack() as stack:
        lines = [stack.enter_context(connected(furnished_server)) for _ in range(24)]
        for value, (connection, _) in enumerate(lines):
            connection.sendall(_add(furnished_server, value))
        for connection, _ in lines[::5]:
            connection.shutdown(socket.SHUT_RDWR)
        for value, (_, answers) in enumerate(lines):
            if value % 5:
                status, body = _answer(answers)
                assert (status, np.frombuffer(body[-16:], np.float32).tolist()) == (200, [value + 1.0] * 4)


def _add(server: Server, value: int, rows: int = 1) -> bytes:
    """An infer request for `value` + 1, as it goes over the line."""
    arrays = {"A": np.full((rows, 4), value, np.float32), "B": np.ones((rows, 4), np.float32)}
    inputs = [
        {"name": n, "datatype": "FP32", "shape": a.shape, "parameters": {"binary_data_size": a.nbytes}}
        for n, a in arrays.items()
    ]
    text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = text + b"".join(a.tobytes() for a in arrays.values())
    head = (
        f"POST /v2/models/adding/infer HTTP/1.1\r\nHost: box\r\nAuthorization: Bearer {server.admin_key}\r\n"
        f"Inference-Header-Content-Length: {len(text)}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _answer(stream: IO[bytes]) -> tuple[int, bytes]:
    status = int(stream.readline().split()[1])
    length = 0
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, stream.read(length)
