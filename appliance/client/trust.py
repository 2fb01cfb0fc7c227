"""Whose certificates are believed."""

import ssl
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from appliance.wire.fingerprint import certificate_fingerprint, is_same

AUTHORITY = "/authority.crt"
"""Where a box has the authority that it made itself."""
TIMEOUT_S = 10.0
_BYTES_MAX = 64 * 1024


class UnknownBox(ssl.SSLCertVerificationError):
    """Who answers is not the box of this fingerprint, or speaks no TLS."""

    def __init__(self, url: str, fingerprint: str) -> None:
        super().__init__(f"who answers at {url} is not the box with the fingerprint {fingerprint}")


def trusted(
    ca: Path | str | None = None, *, url: str = "", fingerprint: str | None = None, timeout_s: float = TIMEOUT_S
) -> ssl.SSLContext:
    """The machine's authorities, or only the one of a PEM file, or only the certificate at a box that has this
    fingerprint (SHA-256, as the box's QR codes, `appliance find` and its installer tell it).

    With a fingerprint the box at `url` is asked for its certificate; nothing else is sent before that is
    known to be the right one. Its authority stays when its certificate is renewed.
    Raises: ValueError: both; UnknownBox; OSError where nobody answers.
    """
    if ca is not None and fingerprint is not None:
        raise ValueError("a box is known by a CA file or by its fingerprint, not by both")
    if ca is not None or fingerprint is None:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    for told in (_authority, _shown) if url.startswith("https:") else ():
        certificate = told(url, timeout_s)
        if certificate is not None and is_same(certificate_fingerprint(certificate), fingerprint):
            context = ssl.create_default_context(cadata=certificate)
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # one that others signed is believed for itself
            return context
    raise UnknownBox(url, fingerprint)


def _authority(url: str, timeout_s: float) -> bytes | None:
    """The authority that a box has made itself, as whoever answers tells it; None where there is none.

    Raises: OSError.
    """
    nobody = ssl.create_default_context()
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=nobody))
    try:
        with opener.open(url.rstrip("/") + AUTHORITY, timeout=timeout_s) as answer:
            told: bytes = answer.read(_BYTES_MAX)
            return told
    except (HTTPError, HTTPException):  # who answers speaks no HTTP: not with the authority of a box
        return None


def _shown(url: str, timeout_s: float) -> bytes:
    """The certificate that whoever answers shows. Raises: OSError."""
    parts = urlsplit(url)
    shown = ssl.get_server_certificate((parts.hostname or "", parts.port or 443), timeout=timeout_s)
    return ssl.PEM_cert_to_DER_cert(shown)
