"""The file of probes: which kinds of processors have run something on this machine before."""

from pathlib import Path

from appliance.modelstore.store.json_file import JsonFile


class PassedProbes:
    """Fingerprints that a probe has passed on, between two runs of the box. A damaged file is an empty one."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path)
        document = self._file.read()
        self._passed = {one for one in document if isinstance(one, str)} if isinstance(document, list) else set()

    def has(self, fingerprint: str) -> bool:
        return fingerprint in self._passed

    def note(self, fingerprint: str, *, passed: bool) -> None:
        """Replace the file where that is news; a disk that is full costs the next start a probe, nothing else."""
        if passed is self.has(fingerprint):
            return
        self._passed ^= {fingerprint}
        self._file.save(sorted(self._passed))
