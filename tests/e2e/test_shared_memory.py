"""Tensors in system shared memory, as the protocol's official client passes them, against a real box."""

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
import tritonclient.http as triton
import tritonclient.utils.shared_memory as shm
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException, deserialize_bytes_tensor, serialize_byte_tensor

from appliance.api.regions.region import FOLDER
from appliance.wire.access import KeyOrder
from tests.api.stand import copied
from tests.e2e.polling import until
from tests.e2e.server import Server, brought, running_server

pytestmark = [pytest.mark.usefixtures("processes", "ports"), pytest.mark.timeout(240)]
REGIONS_MAX, BYTES_MAX = 4, 1 << 22
SETTINGS = {
    "APPLIANCE_HTTP__SHARED_MEMORY": "true",
    "APPLIANCE_HTTP__SHARED_MEMORY_REGIONS_MAX": str(REGIONS_MAX),
    "APPLIANCE_HTTP__SHARED_MEMORY_BYTES_MAX": str(BYTES_MAX),
}
A, B = np.arange(8, dtype=np.float32).reshape(2, 4), np.full((2, 4), 10, np.float32)


@dataclass
class Caller:
    """A tenant's official client, and the shared memory objects that it makes."""

    client: triton.InferenceServerClient
    key: str
    url: str
    objects: dict[str, Any] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        """Fresh for every call: the client writes into the mapping that it is given."""
        return {"Authorization": f"Bearer {self.key}"}

    def make(self, key: str, size: int) -> Any:
        made = self.objects[key] = shm.create_shared_memory_region(key, key, size, create_only=True)
        return made

    def register(self, name: str, key: str, size: int, offset: int = 0) -> None:
        self.client.register_system_shared_memory(name, key, size, offset, headers=self.headers)

    def register_both(self) -> None:
        """A region `in` with A and B."""
        shm.set_shared_memory_region(self.make("ea_in", 64), [A, B])
        self.register("in", "ea_in", 64)

    def unregister(self, name: str = "") -> None:
        self.client.unregister_system_shared_memory(name, headers=self.headers)

    def status(self, name: str = "") -> Any:
        return self.client.get_system_shared_memory_status(name, headers=self.headers)

    def infer(self, model: str, inputs: list[Any], outputs: list[Any] | None = None) -> triton.InferResult:
        return self.client.infer(model, inputs, outputs=outputs, headers=self.headers)

    def close(self) -> None:
        self.unregister()
        for made in self.objects.values():
            shm.destroy_shared_memory_region(made)
        self.objects.clear()


@dataclass(frozen=True)
class Box:
    server: Server
    keys: dict[str, str]

    @property
    def address(self) -> str:
        return self.server.url.removeprefix("http://")

    @contextmanager
    def caller(self, who: str = "harbour") -> Iterator[Caller]:
        with triton.InferenceServerClient(self.address) as client:
            made = Caller(client, self.keys[who], self.server.url)
            try:
                yield made
            finally:
                made.close()


@pytest.fixture(scope="module")
def box(furnished: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """With an adder that all may call."""
    with running_server(copied(furnished[0], tmp_path_factory.mktemp("shared") / "state"), **SETTINGS) as server:
        yield Box(server, furnished[1])


@pytest.fixture
def caller(box: Box) -> Iterator[Caller]:
    with box.caller() as made:
        yield made


def halves_and_texts(path: Path) -> Path:
    """`H2` = `H` + `H` in half precision, `U` = `T`, texts."""
    sides = {"H": TensorProto.FLOAT16, "T": TensorProto.STRING}
    inputs = [helper.make_tensor_value_info(name, kind, ["n", 2]) for name, kind in sides.items()]
    outputs = [
        helper.make_tensor_value_info("H2", TensorProto.FLOAT16, ["n", 2]),
        helper.make_tensor_value_info("U", TensorProto.STRING, ["n", 2]),
    ]
    nodes = [helper.make_node("Add", ["H", "H"], ["H2"]), helper.make_node("Identity", ["T"], ["U"])]
    graph = helper.make_graph(nodes, "mixed", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def shared(name: str, shape: list[int], word: str, region: str, size: int, offset: int = 0) -> triton.InferInput:
    tensor = triton.InferInput(name, shape, word)
    tensor.set_shared_memory(region, size, offset)
    return tensor


def plain(name: str, array: np.ndarray) -> triton.InferInput:
    tensor = triton.InferInput(name, list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


def into(name: str, region: str, size: int, offset: int = 0) -> triton.InferRequestedOutput:
    output = triton.InferRequestedOutput(name)
    output.set_shared_memory(region, size, offset)
    return output


def both(region: str) -> list[triton.InferInput]:
    """A and B, one after the other in a region."""
    return [shared("A", [2, 4], "FP32", region, 32), shared("B", [2, 4], "FP32", region, 32, 32)]


def refused(call: Callable[[], Any], words: str, status: str = "400") -> None:
    with pytest.raises(InferenceServerException, match=words) as error:
        call()
    assert error.value.status() == status


def test_shared_memory_carries_input_and_output_tensors(box: Box, caller: Caller) -> None:
    """The answer says where the output is, and carries none of it; other tensors may come in the body, and go in it."""
    assert "system_shared_memory" in caller.client.get_server_metadata()["extensions"]
    source, target = caller.make("ea_in", 64), caller.make("/ea_out", 100)
    shm.set_shared_memory_region(source, [A, B])
    caller.register("in", "ea_in", 64)
    caller.register("out", "/ea_out", 60, offset=40)
    assert caller.status() == [
        {"name": "in", "key": "ea_in", "offset": 0, "byte_size": 64},
        {"name": "out", "key": "/ea_out", "offset": 40, "byte_size": 60},
    ]
    answer = caller.infer("adding", both("in"), [into("SUM", "out", 50, 8)])
    assert answer.get_output("SUM") == {
        "name": "SUM",
        "datatype": "FP32",
        "shape": [2, 4],
        "parameters": {"shared_memory_region": "out", "shared_memory_offset": 8, "shared_memory_byte_size": 32},
    }
    np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float32, [2, 4], offset=48), A + B)
    inputs = [shared("A", [2, 4], "FP32", "in", 32), plain("B", B)]
    for is_binary in (True, False):
        mixed = caller.infer("adding", inputs, [triton.InferRequestedOutput("SUM", binary_data=is_binary)])
        np.testing.assert_array_equal(mixed.as_numpy("SUM"), A + B)
    with box.caller("probe") as device:  # of the same tenant
        np.testing.assert_array_equal(device.infer("adding", both("in")).as_numpy("SUM"), A + B)
        assert len(device.status()) == 2


@pytest.mark.nightly("a model of its own")
def test_shared_memory_carries_fp16_and_bytes_tensors(box: Box, caller: Caller, tmp_path: Path) -> None:
    """In both directions; the size of texts is the bytes of their encoding."""
    with box.server.client() as admin:
        brought(admin, halves_and_texts(tmp_path / "mixed.onnx"), "mixed", shared=True, metadata={"precisions": []})
    halves = np.array([[1.5, -2], [0, 3]], np.float16)
    texts = np.array([["one", "zwölf"], ["", "three"]], np.object_)
    packed = serialize_byte_tensor(texts)
    size = len(packed.item())
    source, target = caller.make("ea_in", 8 + size), caller.make("ea_out", 200)
    shm.set_shared_memory_region(source, [halves, packed])
    caller.register("in", "ea_in", 8 + size)
    caller.register("out", "ea_out", 200)
    inputs = [shared("H", [2, 2], "FP16", "in", 8), shared("T", [2, 2], "BYTES", "in", size, 8)]
    answer = caller.infer("mixed", inputs, [into("H2", "out", 8), into("U", "out", 192, 8)])
    assert answer.get_output("U")["parameters"]["shared_memory_byte_size"] == size
    np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float16, [2, 2]), 2 * halves)
    found = deserialize_bytes_tensor(bytes(target._mpsm_handle.buf[8 : 8 + size]))
    assert [text.decode() for text in found] == list(texts.ravel())
    inputs[1] = shared("T", [2, 2], "BYTES", "in", size - 1, 8)
    refused(lambda: caller.infer("mixed", inputs), "BYTES data ends inside an element")


def test_infer_with_bad_shared_memory_placement_is_refused(caller: Caller) -> None:
    """Places outside the region, sizes that are not the tensor's, outputs that overlap or find no room."""
    caller.register_both()

    def with_a(size: int, offset: int = 0, region: str = "in", word: str = "FP32") -> Callable[[], Any]:
        return lambda: caller.infer("adding", [shared("A", [2, 4], word, region, size, offset), plain("B", B)])

    refused(with_a(32, 33), "32 bytes from offset 33 do not fit into the 64")
    refused(with_a(32, 1 << 40), "do not fit into the 64")
    refused(with_a(32, -1), "shared_memory_offset must be a whole number")
    refused(with_a(32, 1 << 70), "shared_memory_offset must be a whole number")
    refused(with_a(28), "28 bytes for shape")
    refused(with_a(64, word="FP64"), "FP32")
    refused(with_a(32, region="nothing"), "no shared memory region 'nothing'", "404")
    with_both = both("in")
    refused(lambda: caller.infer("adding", with_both, [into("SUM", "in", 16)]), "'SUM' takes 32 bytes")
    refused(lambda: caller.infer("adding", with_both, [into("SUM", "in", 32, 40)]), "output 'SUM'.*do not fit")
    overlapping = [into("SUM", "in", 32), into("OTHER", "in", 32, 31)]
    refused(lambda: caller.infer("adding", with_both, overlapping), "outputs overlap")
    refused(lambda: caller.infer("adding", with_both, [into("OTHER", "in", 32)]), "OTHER")
    for count, words in ((1000, "no input 'X0'"), (1030, "at most 1024")):
        many = [shared(f"X{number}", [1], "FP32", "in", 4) for number in range(count)]
        refused(lambda many=many: caller.infer("adding", many), words)  # type: ignore[misc]
    outputs = [into("SUM", "in", 32, 16)]  # over the inputs: they were copied before
    caller.infer("adding", with_both, outputs)
    held = shm.get_contents_as_numpy(caller.objects["ea_in"], np.float32, [2, 4], offset=16)
    np.testing.assert_array_equal(held, A + B)


def test_shared_memory_registration_is_validated_and_bounded(caller: Caller) -> None:
    """What is asked for has to be there, and within the bounds of a tenant; tests/api/regions has more of them."""
    caller.make("ea_in", 4096)
    caller.register("in", "ea_in", 64)
    refused(lambda: caller.register("in", "ea_in", 64), "registered already")
    refused(lambda: caller.register("more", "ea_in", -1), "byte_size")
    refused(lambda: caller.register("more", "ea_in", 64, -1), "offset")
    refused(lambda: caller.register("more", "ea_nothing", 64), "No such file")
    refused(lambda: caller.status("more"), "no shared memory region 'more'", "404")
    for number in range(REGIONS_MAX - 1):
        caller.register(f"more{number}", "ea_in", 64)
    refused(lambda: caller.register("last", "ea_in", 64), f"may have {REGIONS_MAX} shared memory regions", "429")
    caller.unregister("in")
    caller.unregister("in")  # no error, as with the reference
    caller.make("ea_large", BYTES_MAX)
    refused(lambda: caller.register("last", "ea_large", BYTES_MAX), "bytes of shared memory", "429")
    caller.unregister()
    assert caller.status() == []
    caller.register("last", "ea_large", BYTES_MAX)


def test_shared_memory_key_reaches_shared_memory_objects_only(box: Box, caller: Caller, tmp_path: Path) -> None:
    """No key leads out of the folder of the objects, nor to a link, a pipe or a folder in it."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(100))
    link, pipe, folder = FOLDER / "ea_link", FOLDER / "ea_pipe", FOLDER / "ea_folder"
    with ExitStack() as stack:
        link.symlink_to(secret)
        stack.callback(link.unlink)
        os.mkfifo(pipe)
        stack.callback(pipe.unlink)
        folder.mkdir()
        stack.callback(folder.rmdir)
        inside = folder / "inside"
        inside.write_bytes(bytes(100))
        stack.callback(inside.unlink)
        for key in (f"../..{secret}", str(secret), "ea_folder/inside", "..", ".", "/", "", "a\0b", "a/../ea_in"):
            refused(lambda key=key: caller.register("in", key, 10), "is no key")  # type: ignore[misc]
        refused(lambda: caller.register("in", "ea_link", 10), "symbolic links")
        refused(lambda: caller.register("in", "ea_pipe", 10), "is no shared memory object")
        refused(lambda: caller.register("in", "ea_folder", 10), "cannot be opened")
        refused(lambda: caller.register("in", "x" * 300, 10), "cannot be opened")
    assert box.server.process.poll() is None


def test_shared_memory_regions_of_tenants_are_isolated(box: Box, caller: Caller) -> None:
    """Another tenant sees, uses and unregisters no region of this tenant, and cannot register its object."""
    caller.register_both()
    with box.caller("museum") as other:
        assert other.status() == []
        refused(lambda: other.status("in"), "no shared memory region 'in'", "404")
        refused(lambda: other.infer("adding", both("in")), "no shared memory region 'in'", "404")
        refused(lambda: other.register("mine", "ea_in", 64), "registered by another tenant")
        refused(lambda: other.register("mine", "/ea_in", 64), "registered by another tenant")
        os.link(FOLDER / "ea_in", FOLDER / "ea_alias")
        try:
            refused(lambda: other.register("mine", "ea_alias", 64), "registered by another tenant")
        finally:
            (FOLDER / "ea_alias").unlink()
        other.unregister("in")
        other.unregister()
        shm.set_shared_memory_region(other.make("ea_other", 64), [B, B])
        other.register("in", "ea_other", 64)
        np.testing.assert_array_equal(other.infer("adding", both("in")).as_numpy("SUM"), B + B)
        np.testing.assert_array_equal(caller.infer("adding", both("in")).as_numpy("SUM"), A + B)
    assert [one["name"] for one in caller.status()] == ["in"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_shared_memory_object_of_another_user_is_refused(caller: Caller) -> None:
    """The permissions of the object do not count: the process that registers it must run as the user that owns it."""
    caller.make("ea_in", 64)
    os.chmod(FOLDER / "ea_in", 0o666)
    words = {"key": "ea_in", "offset": 0, "byte_size": 64}
    path = "/v2/systemsharedmemory/region/in/register"
    order = (
        "import http.client, sys\n"
        "line = http.client.HTTPConnection(sys.argv[1])\n"
        "line.request('POST', sys.argv[2], sys.argv[3], {'Authorization': 'Bearer ' + sys.argv[4]})\n"
        "print(line.getresponse().read().decode())\n"
    )
    url = caller.url.removeprefix("http://")
    command = [os.path.realpath(sys.executable), "-c", order, url, path, str(words).replace("'", '"'), caller.key]
    nobody: dict[str, Any] = {"user": 64_900, "group": 64_900, "extra_groups": [], "cwd": "/"}
    said = subprocess.run(command, check=True, capture_output=True, text=True, **nobody)
    assert "belongs to another user" in said.stdout, said
    assert caller.status() == []


def test_box_survives_shared_memory_truncated_during_requests(box: Box, caller: Caller) -> None:
    """An object that grows and shrinks while requests read and write it: right answers or that error, and no end."""
    caller.register_both()
    stop = threading.Event()

    def shake() -> None:
        while not stop.is_set():
            os.truncate(FOLDER / "ea_in", 0)
            os.truncate(FOLDER / "ea_in", 64)

    thread = threading.Thread(target=shake)
    thread.start()
    try:
        found = {_outcome(lambda: caller.infer("adding", both("in"), [into("SUM", "in", 64)])) for _ in range(300)}
    finally:
        stop.set()
        thread.join()
    shorter = "[400] the object of the shared memory region 'in' is shorter than when it was registered"
    assert found <= {"answered", shorter}
    assert box.server.process.poll() is None


def _outcome(call: Callable[[], Any]) -> str:
    try:
        call()
    except InferenceServerException as error:
        return str(error)
    return "answered"


def _open_objects(server: Server) -> list[str]:
    folder = Path(f"/proc/{server.process.pid}/fd")
    names = []
    for link in folder.iterdir():
        try:
            names.append(os.readlink(link))
        except FileNotFoundError:
            continue
    return [name for name in names if name.startswith(f"{FOLDER}/ea_")]


def test_shared_memory_regions_close_with_their_key_or_tenant(box: Box) -> None:
    """A new tenant of the same name has none."""
    with box.server.client() as admin, ExitStack() as stack:
        admin.create_tenant("passing")
        keys = [admin.create_key("passing", KeyOrder()) for _ in range(2)]
        clients = [stack.enter_context(triton.InferenceServerClient(box.address)) for _ in keys]
        callers = [Caller(client, key.key, box.server.url) for client, key in zip(clients, keys, strict=True)]
        objects = stack.enter_context(box.caller())
        for number, one in enumerate(callers):
            objects.make(f"ea_{number}", 64)
            one.register(f"region{number}", f"ea_{number}", 64)
        assert sorted(_open_objects(box.server)) == [f"{FOLDER}/ea_0", f"{FOLDER}/ea_1"]
        admin.revoke_key("passing", keys[0].id)
        assert [one["name"] for one in callers[1].status()] == ["region1"]
        assert _open_objects(box.server) == [f"{FOLDER}/ea_1"]
        admin.delete_tenant("passing")
        until(lambda: _open_objects(box.server) == [], "the end of a tenant's regions")
        admin.create_tenant("passing")
        again = Caller(callers[0].client, admin.create_key("passing", KeyOrder()).key, box.server.url)
        assert again.status() == []


@pytest.mark.nightly("a server of its own")
def test_shared_memory_is_refused_unless_turned_on(furnished_server: Server) -> None:
    """A request that names a region is told the setting."""
    with triton.InferenceServerClient(furnished_server.url.removeprefix("http://")) as client:
        caller = Caller(client, furnished_server.admin_key, furnished_server.url)
        assert "system_shared_memory" not in client.get_server_metadata()["extensions"]
        refused(caller.status, "http.shared_memory", "404")
        refused(caller.unregister, "http.shared_memory", "404")
        refused(lambda: caller.register("in", "ea_in", 64), "http.shared_memory", "404")
        refused(lambda: caller.infer("adding", both("in")), "http.shared_memory", "404")
        plain_ones = [plain("A", A), plain("B", B)]
        refused(lambda: caller.infer("adding", plain_ones, [into("SUM", "in", 64)]), "http.shared_memory", "404")


@pytest.mark.nightly("a server of its own")
def test_shared_memory_can_be_registered_over_tls(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "state", **SETTINGS, APPLIANCE_HTTP__TLS_SELF_SIGNED="true") as server,
        ExitStack() as stack,
    ):
        made = shm.create_shared_memory_region("ea_tls", "ea_tls", 64, create_only=True)
        stack.callback(shm.destroy_shared_memory_region, made)
        headers = {"Authorization": f"Bearer {server.admin_key}"}
        authority = ssl.create_default_context(cafile=str(server.state_dir / "tls" / "cert.pem"))
        with httpx.Client(base_url=server.url, headers=headers, verify=authority) as client:
            order = {"key": "ea_tls", "byte_size": 64}
            assert client.post("/v2/systemsharedmemory/region/in/register", json=order).status_code == 200


def test_shared_memory_works_over_the_unix_socket(tmp_path: Path) -> None:
    """Regions do not survive a restart."""
    path = tmp_path / "box.sock"
    settings = {**SETTINGS, "APPLIANCE_HTTP__UNIX_SOCKET": str(path)}
    with running_server(tmp_path / "state", **settings) as server, ExitStack() as stack:
        made = shm.create_shared_memory_region("ea_unix", "ea_unix", 64, create_only=True)
        stack.callback(shm.destroy_shared_memory_region, made)
        headers = {"Authorization": f"Bearer {server.admin_key}"}
        region = "/v2/systemsharedmemory/region/in"

        def connected() -> httpx.Client:
            return httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://box", headers=headers)

        with connected() as local:
            order = {"key": "ea_unix", "offset": 0, "byte_size": 64}
            assert local.post(f"{region}/register", json=order).json() == {}
            assert local.get(f"{region}/status").json() == [{"name": "in", **order}]
            assert local.get(f"{region}/register").status_code == 405
            assert local.post(f"{region}/nothing").status_code == 404
        server.stop()
        server.start_again()
        with connected() as local:
            assert local.get("/v2/systemsharedmemory/status").json() == []


def test_shared_memory_example_of_the_documentation_runs(box: Box) -> None:
    """As it stands in docs/api.md: the numbers are in the region."""
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text().partition("## Tensors in shared memory")[2]
    program = text.partition("```python\n")[2].partition("```")[0].replace("127.0.0.1:8080", "HERE")
    assert "HERE" in program
    command = [sys.executable, "-c", program.replace("HERE", box.address)]
    environment = {**os.environ, "APPLIANCE_KEY": box.keys["harbour"]}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert said.returncode == 0, said.stderr
    assert sum(float(number) for number in said.stdout.strip("[] \n").split()) == pytest.approx(1, abs=1e-4)
    with box.caller() as caller:
        assert caller.status() == []
