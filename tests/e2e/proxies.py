"""nginx and Caddy in front of a box, with the configurations of docs/operations.md: the box is shown below `/box`."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.e2e.polling import until

DOCUMENT = Path(__file__).parents[2] / "docs/operations.md"


def config_of(program: str, box: str, folder: Path, port: int) -> tuple[Path, list[str]]:
    """The documented configuration in a file that the program takes, and its command."""
    (text,) = re.findall(rf"```{program}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    text = text.replace("127.0.0.1:8080", box.removeprefix("http://"))
    file = folder / f"{program}.conf"
    if program == "caddy":
        file.write_text(f"{{\nadmin off\nauto_https off\n}}\nhttp://127.0.0.1:{port} {{\n{text}}}\n")
        return file, ["run", "--adapter", "caddyfile", "--config", str(file)]
    logs = f"error_log {folder}/error.log; pid {folder}/pid; daemon off; user root;"
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    server = f"server {{ listen 127.0.0.1:{port}; access_log off;\n{text}}}"
    file.write_text(f"{logs} events {{}} http {{ {temporary} {server} }}")
    return file, ["-p", str(folder), "-c", str(file)]


def program_path(name: str, folder: Path) -> str:
    """Where the program is; Debian's package is unpacked into `folder` where the machine has none."""
    if found := shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin"):
        return found
    got = subprocess.run(["apt-get", "download", "-q", name], cwd=folder, capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"a package registry gives too little: {name}: {got.stderr[-200:]}")
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    return str(next(folder.glob(f"usr/*bin/{name}")))


@contextmanager
def proxied(program: str, box: str, folder: Path) -> Iterator[str]:
    """The address of the box behind a proxy."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    _, arguments = config_of(program, box, folder, port)
    environment = {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [program_path(program, folder), *arguments], env=environment, stdout=output, stderr=output
        )
    url = f"http://127.0.0.1:{port}/box"
    try:
        until(lambda: _answers(process, f"{url}/v2/health/ready", folder), "an answer through the proxy")
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _answers(process: subprocess.Popen[bytes], url: str, folder: Path) -> bool:
    assert process.poll() is None, (folder / "output").read_text()
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False
