"""Recorded decisions of dispatch."""

from typing import Any

from appliance.lab.plan import plan_one
from appliance.runtime.decisions.document import dispatch_record
from tests.fakes.engine import EngineBench


def replayed(bench: EngineBench) -> list[dict[str, Any]]:
    """The answers that are recorded; `appliance plan` has found each of them again."""
    answers = []
    for kind, facts in bench.decisions.told:
        if kind == "dispatch":
            record = dispatch_record(bench.clock.wall_now(), facts)
            again = plan_one(dict(record.problem))
            again.pop("elapsed_ms")
            assert again == {key: value for key, value in record.answer.items() if key not in ("outcome", "actions")}
            answers.append(dict(record.answer))
    return answers
