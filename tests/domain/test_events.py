"""Which events ask for attention."""

import re
from pathlib import Path

import pytest

from appliance.domain import events
from appliance.domain.events import Severity, severity_of
from appliance.domain.states import ProcessorState

ROOT = Path(events.__file__).parents[1]


@pytest.mark.parametrize(
    ("event", "facts", "severity"),
    [
        ("variant loaded", {}, Severity.INFO),
        ("residency thrashes", {}, Severity.WARNING),
        ("processor lost", {}, Severity.ERROR),
        ("job progressed", {"state": "running"}, Severity.INFO),
        ("job progressed", {"state": "failed"}, Severity.ERROR),
        ("condition began", {"severity": "warn"}, Severity.WARNING),
        ("condition began", {"severity": "bad"}, Severity.ERROR),
    ],
)
def test_event_severity_follows_from_its_name_and_a_failed_job(
    event: str, facts: dict[str, object], severity: Severity
) -> None:
    assert severity_of(event, facts) is severity


def test_every_event_with_a_severity_is_one_that_the_box_emits() -> None:
    """A name that nobody emits any more would be a warning that never comes."""
    source = "".join(path.read_text() for path in ROOT.rglob("*.py") if path != Path(events.__file__))
    emitted = set(re.findall(r'"([a-z -]+)"', source)) | {f"processor {state.value}" for state in ProcessorState}
    assert {name for name in events.SEVERITIES if name not in emitted} == set()
