"""Real clients against registries on this machine: a folder for pip, a small HTTP server for npm, a closed port for
neither.
"""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zipfile import ZipFile

import pytest

from appliance.demo.zoo.cache import Cache, NotAvailable, RegistryUnreachable
from appliance.demo.zoo.catalogue import Carrier, Client
from appliance.demo.zoo.package_cache import PackageCache
from tests.harness.lacking import lacks_tools, skip_if

pytestmark = pytest.mark.usefixtures("ports", "processes")

CLOSED = "http://127.0.0.1:9/"


def carrier(version: str = "1.0", package: str = "tiny-carrier", client: Client = Client.PIP) -> Carrier:
    return Carrier("tiny", client, package, version, 7_000, "MIT", "tiny/", {})


def silent(what: str, done: int, total: int | None) -> None:
    pass


def wheel(folder: Path, name: str = "tiny_carrier", version: str = "1.0") -> Path:
    """A wheel that pip takes, with one data file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/data/model.onnx", b"weights" * 1000)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def pip_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip asks this folder and nobody else."""
    folder = tmp_path / "wheels"
    wheel(folder)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both registries are a port on which nobody listens."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", CLOSED)
    monkeypatch.setenv("npm_config_registry", CLOSED)


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_pip_downloads_a_wheel_with_progress(tmp_path: Path, pip_folder: Path) -> None:
    """The package comes by name and version, and the progress ends at its size."""
    seen: list[tuple[str, int, int | None]] = []
    packages = PackageCache(Cache(tmp_path / "cache"), lambda *step: seen.append(step))
    path = packages.download(carrier(), empty(tmp_path / "in"))
    assert path.read_bytes() == (pip_folder / path.name).read_bytes()
    assert seen[-1] == ("tiny-carrier 1.0", 7_000, 7_000)
    assert all(total == 7_000 and 0 <= done <= 7_000 for _, done, total in seen)


def test_missing_version_is_told_apart_from_a_missing_registry(tmp_path: Path, pip_folder: Path) -> None:
    """The message says what to do."""
    packages = PackageCache(Cache(tmp_path / "cache"), silent)
    with pytest.raises(NotAvailable, match=r"does not serve tiny-carrier 9\.9") as caught:
        packages.download(carrier("9.9"), empty(tmp_path / "in"))
    assert "by hand" in str(caught.value)


@pytest.mark.usefixtures("nowhere")
def test_unreachable_registry_is_asked_once(tmp_path: Path) -> None:
    """A clear error, and the next carrier of that registry fails without asking again."""
    packages = PackageCache(Cache(tmp_path / "cache"), silent)
    with pytest.raises(RegistryUnreachable, match="check the connection"):
        packages.download(carrier(), empty(tmp_path / "in"))
    second = empty(tmp_path / "second")
    with pytest.raises(RegistryUnreachable, match="other-carrier"):
        packages.download(carrier(package="other-carrier"), second)
    assert not list(second.iterdir()), "no client was started"


@pytest.mark.nightly("waits for a registry that is not there")
@pytest.mark.usefixtures("nowhere")
def test_unreachable_npm_registry_is_recognised(tmp_path: Path) -> None:
    skip_if(lacks_tools({"npm": "npm"}))
    packages = PackageCache(Cache(tmp_path / "cache"), silent)
    with pytest.raises(RegistryUnreachable, match="npm could not download"):
        packages.download(carrier("1.0.0", "@some/carrier", Client.NPM), empty(tmp_path / "in"))


class Registry(BaseHTTPRequestHandler):
    """As much of an npm registry as `npm pack` asks for: one package of one version."""

    tarball = b""

    def do_GET(self) -> None:
        if self.path.endswith(".tgz"):
            return self._answer(200, self.tarball, "application/octet-stream")
        if "carrier" not in self.path:
            return self._answer(404, b"{}", "application/json")
        host = f"http://{self.headers['Host']}"
        digest = base64.b64encode(hashlib.sha512(self.tarball).digest()).decode()
        dist = {"tarball": f"{host}/carrier-1.0.0.tgz", "integrity": f"sha512-{digest}"}
        version = {"name": "@some/carrier", "version": "1.0.0", "dist": dist}
        document = {"name": "@some/carrier", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        return self._answer(200, json.dumps(document).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def npm_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """npm asks a server of this test and nobody else."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in (
            ("package.json", b'{"name": "@some/carrier", "version": "1.0.0"}'),
            ("model.bin", b"x" * 5000),
        ):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    monkeypatch.setattr(Registry, "tarball", buffer.getvalue())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_address[1]}/")
    monkeypatch.setenv("npm_config_userconfig", str(tmp_path / "npmrc"))
    yield
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.usefixtures("npm_registry")
def test_npm_downloads_a_scoped_tarball(tmp_path: Path) -> None:
    """`npm pack` of a scoped package gives one tarball, and a version that is not there is not served."""
    skip_if(lacks_tools({"npm": "npm"}))
    packages = PackageCache(Cache(tmp_path / "cache"), silent)
    path = packages.download(carrier("1.0.0", "@some/carrier", Client.NPM), empty(tmp_path / "in"))
    assert path.name == "some-carrier-1.0.0.tgz"
    assert path.read_bytes() == Registry.tarball
    with pytest.raises(NotAvailable, match="does not serve"):
        packages.download(carrier("2.0.0", "@some/carrier", Client.NPM), empty(tmp_path / "second"))


def test_missing_npm_or_apt_is_an_error_with_the_remedy(
    tmp_path: Path, pip_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without npm the Node package is asked from pip, which has none here; without apt that part is skipped."""
    monkeypatch.setenv("PATH", str(empty(tmp_path / "bare")))
    packages = PackageCache(Cache(tmp_path / "cache"), silent)
    with pytest.raises(NotAvailable, match=r"install Node\.js"):
        packages.download(carrier("1.0.0", "@some/carrier", Client.NPM), empty(tmp_path / "in"))
    documents = carrier("1.0", "some-doc", Client.APT)
    with pytest.raises(NotAvailable, match="Debian"):
        PackageCache(Cache(tmp_path / "cache"), silent, {"doc": documents}).folder("doc")
