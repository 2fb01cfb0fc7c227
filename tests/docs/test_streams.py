"""docs/streams.md says what the messages are: its exchange can be read, and every type, field and code stands there."""

import itertools
import json
import re
from pathlib import Path

import pytest

from appliance.wire import stream
from appliance.wire.stream import Close, Message, read_box_message, read_device_message

TEXT = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()
LINES = re.search(r"^```\n(.*?)^```", TEXT, re.M | re.S)
EXCHANGE = [] if LINES is None else LINES[1].splitlines()
FROM_DEVICE = [line[2:] for line in EXCHANGE if line.startswith("> {")]
FROM_BOX = [line[2:] for line in EXCHANGE if line.startswith("< {")]
MESSAGES = [
    stream.FrameHead,
    stream.DeviceClock,
    stream.Ack,
    stream.ResultMessage,
    stream.PlanMessage,
    stream.BoxClock,
    stream.Notice,
    stream.ErrorMessage,
]


def test_documented_exchange_has_messages_in_both_directions() -> None:
    """Each line has its direction, and a picture stands behind its head."""
    assert len(FROM_DEVICE) >= 3
    assert len(FROM_BOX) >= 5
    for line, following in itertools.pairwise(EXCHANGE):
        assert line[:2] in ("> ", "< ")
        if following.startswith("> ("):
            assert f"({json.loads(line[2:])['bytes']} bytes)" == following[2:]


@pytest.mark.parametrize("line", FROM_DEVICE)
def test_documented_device_message_is_parsed_with_every_field(line: str) -> None:
    """The parsed message has no other field."""
    message = read_device_message(line)
    assert json.loads(message.model_dump_json(exclude_unset=True)) == json.loads(line)


@pytest.mark.parametrize("line", FROM_BOX)
def test_documented_box_message_is_parsed_with_every_field(line: str) -> None:
    message = read_box_message(line)
    assert message is not None
    assert json.loads(message.model_dump_json(exclude_unset=True)) == json.loads(line)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_stream_page_names_every_message_field(message: type[Message]) -> None:
    missing = [name for name in message.model_fields if not re.search(rf"`{name}`|\"{name}\"", TEXT)]
    assert missing == ["expected_drop"] * ("expected_drop" in missing)


def test_stream_page_lists_exactly_the_close_codes() -> None:
    codes = {value for name, value in vars(Close).items() if name.isupper()}
    assert codes == {int(code) for code in re.findall(r"^\| (\d{4}) \|", TEXT, re.M)}
