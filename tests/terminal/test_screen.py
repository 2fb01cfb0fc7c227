"""What a person or a program sees: JSON on standard output."""

import json

import pytest

from appliance.terminal import screen
from appliance.wire.access import KeyOrder


def test_json_output_shows_shapes_as_the_wire_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Alone, in a list, or inside another value; what JSON does not know otherwise is text."""
    shape = KeyOrder(label="glasses")
    screen.show_json(shape)
    assert json.loads(capsys.readouterr().out) == shape.model_dump(mode="json")
    screen.show_json({"keys": [shape], "error": ValueError("odd")})
    assert json.loads(capsys.readouterr().out) == {"keys": [shape.model_dump(mode="json")], "error": "odd"}
