"""Skips that are allowed name tests that exist, why they may be skipped, and what a machine needs to run them."""

import pytest

from tests.harness.skips import FOLDER, QUARANTINE_MAX, AllowedSkip, quarantined, rows


@pytest.mark.parametrize("row", rows("skips_allowed.txt"), ids=lambda row: f"{row[0]} {row[1]}")
def test_allowed_skip_row_has_test_reason_and_need(row: list[str]) -> None:
    """The reason is long enough to mean one thing only."""
    test, reason, need = row
    path, _, name = test.partition("::")
    file = FOLDER.parent / path
    assert file.exists()
    assert not name or f"def {name}(" in file.read_text()
    assert need
    assert len(reason) > 4


def test_allowed_skip_covers_names_and_reasons_by_prefix() -> None:
    skip = AllowedSkip("tests/gpu/", "no NVIDIA GPU")
    assert skip.covers("tests/gpu/test_hardware.py::test_kind[all]", "no NVIDIA GPU: there is no driver")
    assert not skip.covers("tests/gpu/test_hardware.py::test_kind[all]", "something else")
    assert not skip.covers("tests/api/test_pages.py::test_pages", "no NVIDIA GPU: there is no driver")


def test_quarantine_is_small_and_names_tests_with_reasons() -> None:
    assert len(quarantined()) <= QUARANTINE_MAX
    for test, reason in quarantined().items():
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (FOLDER.parent / path).read_text()
        assert reason
