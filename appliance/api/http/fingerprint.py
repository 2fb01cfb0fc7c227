"""The fingerprint of a certificate, by which a person or a device knows a box again."""

import hashlib
import ssl
from pathlib import Path

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def fingerprint_of(cert_file: Path) -> str:
    """SHA-256 of the first certificate of a PEM file, as browsers and `openssl x509 -fingerprint -sha256` show it."""
    text = cert_file.read_text()
    first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest().hex(":").upper()
