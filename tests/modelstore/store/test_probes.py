"""What passed a probe is known after a restart, whatever became of the file."""

from pathlib import Path

from appliance.modelstore.store.probes import PassedProbes


def test_passed_probes_are_known_after_restart(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    first = PassedProbes(path)
    for fingerprint, passed in (("a", True), ("b", True), ("a", False), ("c", False)):
        first.note(fingerprint, passed=passed)
    again = PassedProbes(path)
    assert [again.has(one) for one in "abc"] == [False, True, False]


def test_damaged_probes_file_counts_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    for text in ("no JSON", "[" * 100_000, '{"b": 1}', "[1]"):
        path.write_text(text)
        probes = PassedProbes(path)
        assert not probes.has("b")
    probes.note("b", passed=True)
    assert PassedProbes(path).has("b")


def test_passed_probe_counts_in_process_when_file_cannot_be_written(tmp_path: Path) -> None:
    probes = PassedProbes(tmp_path / "gone" / "probes.json")
    probes.note("b", passed=True)
    assert probes.has("b")
