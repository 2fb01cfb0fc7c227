"""Fingerprints of certificates, by which a person or a device knows a box again: in one notation."""

import hashlib


def certificate_fingerprint(certificate: bytes) -> str:
    """SHA-256 of a certificate (DER), as browsers and `openssl x509 -fingerprint -sha256` show it."""
    return hashlib.sha256(certificate).digest().hex(":").upper()


def is_same(one: str, other: str) -> bool:
    """Whether two texts tell the same fingerprint, with colons or without, in small letters or large ones."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> str:
    return "".join(text.split()).replace(":", "").lower()
