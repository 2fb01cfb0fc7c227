"""Uploads that were begun and not imported yet, remembered on this machine, so that the next try goes on where the last
one stopped.

A file is known by its digest: another file of the same name and length begins anew.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.domain.errors import UnknownUpload

if TYPE_CHECKING:
    from appliance.client import Client


def default_file() -> Path:
    """`$XDG_STATE_HOME/edge-appliance/uploads.json`, by default below `~/.local/state`."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (
        (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state")
        / "edge-appliance"
        / "uploads.json"
    )


class PendingUploads:
    """Upload ids on one box, by the digest of the file."""

    def __init__(self, url: str, file: Path | None = None) -> None:
        self._url = url
        self._file = file or default_file()

    def send(self, client: "Client", path: Path, on_progress: Callable[[int, int], None]) -> str:
        """Send what is missing of `path`; returns the id of the complete upload."""
        digest = _digest(path)
        upload = self._begun(client, digest)
        if upload is None:
            upload = client.begin_upload(path, sha256=digest).id
            self._save(digest, upload)
        client.resume_upload(upload, path, on_progress=on_progress)
        return upload

    def forget(self, path: Path) -> None:
        """The upload was imported."""
        self._save(_digest(path), None)

    def _begun(self, client: "Client", digest: str) -> str | None:
        upload = self._load().get(self._key(digest))
        if upload is None:
            return None
        try:
            return client.upload_state(upload).id
        except UnknownUpload:  # swept meanwhile, or it is another box that answers there now
            return None

    def _key(self, digest: str) -> str:
        return f"{self._url} {digest}"

    def _load(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._file.read_text()))
        except (FileNotFoundError, ValueError):
            return {}

    def _save(self, digest: str, upload: str | None) -> None:
        known = self._load()
        if upload is None:
            known.pop(self._key(digest), None)
        else:
            known[self._key(digest)] = upload
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(known, indent=1))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
