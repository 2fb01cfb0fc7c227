"""The file of probes: which kinds of processors have run something on this machine before."""

import json
from pathlib import Path


class PassedProbes:
    """Fingerprints that a probe has passed on, between two runs of the box. A damaged file is an empty one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: set[str] = set()
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError):
            return
        if isinstance(document, list):
            self._passed = {one for one in document if isinstance(one, str)}

    def has(self, fingerprint: str) -> bool:
        return fingerprint in self._passed

    def note(self, fingerprint: str, *, passed: bool) -> None:
        """Replace the file where that is news; a disk that is full costs the next start a probe, nothing else."""
        if passed is self.has(fingerprint):
            return
        self._passed ^= {fingerprint}
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(sorted(self._passed)))
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
