"""Skips and quarantine: tests that a machine cannot run are listed, and so are tests that are known to be unsteady."""

from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]
QUARANTINE_MAX = 3
"""Entries that the quarantine may hold. A fourth unsteady test means: mend one first."""


@dataclass(frozen=True)
class AllowedSkip:
    """A test, or the beginning of the names of several, that may be skipped for a reason that begins so."""

    test: str
    reason: str

    def covers(self, test: str, reason: str) -> bool:
        return test.startswith(self.test) and reason.startswith(self.reason)


def rows(name: str) -> list[list[str]]:
    """Return the rows of a table in the folder of the tests: columns separated by `|`, comments begin with `#`."""
    lines = (FOLDER / name).read_text().splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines if line.strip() and not line.startswith("#")]


def allowed_skips() -> list[AllowedSkip]:
    return [AllowedSkip(row[0], row[1]) for row in rows("skips_allowed.txt")]


def quarantined() -> dict[str, str]:
    """Return the reason of each test in quarantine."""
    return {row[0]: row[1] for row in rows("quarantine.txt")}


class SkipWatch:
    """Collects skips; a skip that is not allowed fails the run."""

    def __init__(self) -> None:
        self._allowed = allowed_skips()
        self.unexpected: list[str] = []

    def see(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not any(skip.covers(report.nodeid, reason) for skip in self._allowed):
            self.unexpected.append(f"{report.nodeid}: {reason}")
