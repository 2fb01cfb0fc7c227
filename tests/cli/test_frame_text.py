"""What a person reads of a frame."""

from typing import Any

import pytest

from appliance.cli.frame_text import tree_of

FOUND = {"stage": "find", "answer": {"text": "a"}}
CUT = {"stage": "lines", "items": [{"stage": "read", "none": "dropped"}]}


@pytest.mark.parametrize(
    ("in_time", "items", "word"),
    [
        (True, [FOUND], "in time"),
        (False, [FOUND], "late"),
        (False, [{**FOUND, "items": [{"stage": "read", "none": "condition"}]}], "late"),
        (False, [{**FOUND, "items": [CUT]}], "incomplete"),
        (False, [{"stage": "find", "none": "error"}], "incomplete"),
    ],
)
def test_frame_text_says_in_time_late_or_incomplete(in_time: bool, items: list[dict[str, Any]], word: str) -> None:
    """A frame that lacks an item has not come late for that."""
    frame = {"items": items, "timings_ms": {"find": 1.0}, "cost": {"seconds": 0.001}, "in_time": in_time}
    assert tree_of(frame)[-1].startswith(f"— {word}; ")
