"""Two scenarios simulated one after the other, as a program with limits: the box as it is, and with edits.

The wire: one JSON object on standard input, `{"limits": {...}, "parent": pid, "today": scenario, "edited": scenario}`;
JSON lines on standard output, `{"progress": 0.5}` any number of times, then `{"today": figures, "edited": figures}` or
`{"error": "..."}`, with `left_out`, the pipelines that are in neither, and `reports` by the same names.
`appliance.api.simulations` starts it.
"""

import json
import sys
from typing import Any

from appliance.child import die_with_parent
from appliance.confinement.limits import ChildLimits, enter

STEP = 0.01
"""So far apart are two words on the progress."""


def main() -> None:
    """Read an order, simulate, answer."""
    order = json.loads(sys.stdin.buffer.read())
    die_with_parent()
    enter(ChildLimits(**order["limits"]), int(order["parent"]))
    from appliance.lab.left_out import with_as_many, without_malformed
    from appliance.lab.problems.base import Malformed
    from appliance.lab.scenario import parse_scenario
    from appliance.lab.simulation import simulate
    from appliance.lab.what_if_report import COLUMNS, DECISIONS_MAX, report_of

    figures: dict[str, Any] = {}
    reports: dict[str, Any] = {}
    left_out: list[str] = []
    try:
        today, left_out = without_malformed(order["today"])
        edited = with_as_many(order["today"], order["edited"], left_out)
        scenarios = {"today": parse_scenario(today), "edited": parse_scenario(edited)}
        for name, scenario in scenarios.items():
            report = _Report(len(figures) / len(scenarios), 1 / len(scenarios))
            run = simulate(scenario, on_progress=report, samples=COLUMNS, decisions=DECISIONS_MAX)
            figures[name] = run.outcome.document()
            reports[name] = report_of(run, scenario.duration_s or 0.0)
            report(1.0)
    except Malformed as error:
        figures = {"error": str(error)}
    except MemoryError:
        figures = {"error": "needs more memory than a simulation may take: simulate less"}
    _say({**figures, "left_out": left_out, "reports": reports})


class _Report:
    """Tells of a share of one of the runs as a share of all."""

    def __init__(self, before: float, part: float) -> None:
        self._before, self._part = before, part
        self._told = 0.0

    def __call__(self, share: float) -> None:
        if share - self._told >= STEP:
            self._told = share
            _say({"progress": self._before + self._part * share})


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
