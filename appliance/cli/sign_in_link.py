"""`appliance sign-in-link`: opens the pages of a box for a browser that has no key at hand."""

import socket
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen

_ANYWHERE = ("192.0.2.1", 9)
"""An address of no machine; nothing is sent there."""
_EVERYWHERE = ("0.0.0.0", "::")


@connected
def sign_in_link(
    box: Connection,
    address: Annotated[
        str | None, typer.Option(help="How browsers reach the box, for example https://box.local:8443.")
    ] = None,
    qr: Annotated[bool, typer.Option(help="Draw the link as a QR code, too.")] = True,
) -> None:
    """Make a link that signs a browser in as this key, by default the admin key of this machine's box: it works once,
    within ten minutes. The first browser that opens it is signed in, so send it as you would send a key.

    [dim]$[/dim] appliance sign-in-link --state /var/lib/edge-appliance
    """
    with box.client() as client:
        made = client.sign_in_link()
    base = (address or _seen_from_outside(box.state, box.url)).rstrip("/")
    link = base + made.path
    fingerprint = _fingerprint(box.ca)
    if box.as_json:
        screen.show_json({"link": link, "expires_at": made.expires_at, "certificate_sha256": fingerprint})
        return
    print(link)
    if qr:
        from appliance.terminal.qr import qr_lines

        print(*qr_lines(link), sep="\n")
    screen.say(f"Good once, until {made.expires_at:%H:%M} UTC.")
    if fingerprint is not None:
        screen.say(f"The box's certificate is its own; the browser asks once. Its SHA-256: {fingerprint}")


def _seen_from_outside(state: Path, url: str) -> str:
    """The address of the box with one of this machine in place of `every one`."""
    try:
        listens = urlsplit((state / "address").read_text().strip())
    except OSError:  # a box on another machine: as it was called
        return url
    if listens.hostname not in _EVERYWHERE:
        return url
    return f"{listens.scheme}://{_own_address()}:{listens.port}"


def _own_address() -> str:
    """The address by which this machine speaks to others; its name where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYWHERE)
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def _fingerprint(cert_file: Path | None) -> str | None:
    """Of the certificate that the box has made itself."""
    if cert_file is None:
        return None
    from appliance.api.http.fingerprint import fingerprint_of

    return fingerprint_of(cert_file)
