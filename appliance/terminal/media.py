"""What a file is, by its name.

The box decides by the first bytes; the type is a courtesy to it and to whoever reads along.
"""

import mimetypes
from pathlib import Path

from appliance.terminal.failure import CommandFailed

_OWN = {
    ".wav": "audio/wav",
    ".webp": "image/webp",
    ".txt": "text/plain",
    ".json": "application/json",
    ".npz": "application/octet-stream",
}


def content_type_of(path: Path) -> str:
    """Raises: CommandFailed when the name does not tell."""
    kind = _OWN.get(path.suffix.lower()) or mimetypes.guess_type(path.name)[0]
    if kind is None:
        raise CommandFailed(
            f"the name {path.name!r} does not tell what it is; say so, for example --content-type image/jpeg"
        )
    return kind
