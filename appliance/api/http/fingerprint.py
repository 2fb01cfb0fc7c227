"""The fingerprint of a certificate in a file."""

import ssl
from pathlib import Path

from appliance.wire.fingerprint import certificate_fingerprint

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def fingerprint_of(cert_file: Path) -> str:
    """Of the first certificate of a PEM file. Raises: OSError; ValueError where there is none in it."""
    text = cert_file.read_text()
    first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
    return certificate_fingerprint(ssl.PEM_cert_to_DER_cert(first))
