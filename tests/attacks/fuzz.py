"""Calls generated from the OpenAPI document, as each role, with what earlier answers named: schemathesis against a real
box.

Wrong is a 500 that is not `run-crashed`, a status or content type that the document does not name, and a body or header
that is not as it says.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
WHOLE_ANSWERS_ONLY = "/events$"
"""Paths whose answers do not end; `tests/api` asks them."""
PHASES = ("examples", "coverage", "fuzzing", "stateful")


@schemathesis.serializer("application/offset+octet-stream")
def _as_it_is(_context: Any, value: Any) -> Any:
    """A piece of an upload: bytes."""
    return value.encode() if isinstance(value, str) else value


@dataclass(slots=True)
class Findings:
    """What came of one run."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """One sentence or more for each kind of fault."""

    @property
    def cases(self) -> int:
        """Calls that were answered."""
        return self.statuses.total()


def fuzz(url: str, key: str | None, *, examples: int, seconds: int, seed: int) -> Findings:
    """Attack a box until every operation had `examples` generated calls, or the time is over."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    schema = schemathesis.openapi.from_dict(
        httpx.get(f"{url}/openapi.json").json(), config=_config(seed, examples, seconds)
    )
    schema.config.update(base_url=url, headers=headers, request_timeout=120, continue_on_failure=True)
    found = Findings()
    for event in from_schema(schema.exclude(path_regex=WHOLE_ANSWERS_ONLY)).execute():
        if isinstance(event, events.ScenarioFinished | events.FuzzScenarioFinished):
            for interaction in event.recorder.interactions.values():
                status = interaction.response.status_code if interaction.response is not None else 0
                found.statuses[str(status)] += 1
            found.wrong += _wrong(event)
        elif isinstance(event, events.NonFatalError | events.FatalError):
            found.wrong.append(f"{getattr(event, 'label', '')}: {getattr(event, 'value', event)!r}")
    return found


def _config(seed: int, examples: int, seconds: int) -> SchemathesisConfig:
    unavailable = {"expected-statuses": ["2xx", "3xx", "4xx", "503", "504", "507"]}
    return SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "max-time": seconds,
            "generation": {"max-examples": examples, "mode": "all", "database": "none"},
            "checks": {
                "enabled": False,
                **{name: {"enabled": True} for name in CHECKS},
                "not_a_server_error": unavailable,
            },
            "phases": {name: {"enabled": True} for name in PHASES},
        }
    )


def _wrong(event: "events.ScenarioFinished | events.FuzzScenarioFinished") -> Iterator[str]:
    recorder = event.recorder
    for checks in recorder.checks.values():
        for check in checks:
            if check.failure_info is not None:
                fault = check.failure_info
                title = f"{recorder.label}: {check.name}: {fault.failure.title}"
                yield f"{title}\n{fault.failure.message}\n{fault.code_sample}"
