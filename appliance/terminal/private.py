"""Files that hold a secret."""

import os
from pathlib import Path

from appliance.terminal.failure import CommandFailed


def write_private(file: Path, text: str) -> None:
    """A file that only its owner can read, not even for an instant otherwise; whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    draft.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror}") from error
    draft.replace(file)
