"""Processors as `appliance system` shows them."""

import pytest

from appliance.cli.system import _in_words
from appliance.wire.box import ProcessorShape


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"state": "serving"}, "npu, serving"),
        ({"state": "serving", "reason": "", "workers": 2, "runs": 1}, "npu, serving   (2 workers, 1 run)"),
        (
            {"state": "lost", "reason": "a run has not ended within 40 s", "workers": 1, "runs": 7},
            "npu, lost: a run has not ended within 40 s   (1 worker, 7 runs)",
        ),
    ],
)
def test_a_line_each(facts: dict[str, object], words: str) -> None:
    """What a tenant's key is not shown is left out."""
    assert _in_words(ProcessorShape.model_validate({"name": "npu", "kind": "npu"} | facts)) == words
