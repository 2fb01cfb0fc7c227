"""Whose certificates are believed."""

import ssl
from pathlib import Path


def trusted(ca: Path | str | None) -> ssl.SSLContext:
    """The machine's authorities, or only the one of a PEM file."""
    return ssl.create_default_context(cafile=None if ca is None else str(ca))
