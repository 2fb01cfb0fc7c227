"""Errors as one sentence that says what to do."""

import httpx
import pytest

from appliance.cli.faults import sentence_of
from appliance.client import UnexpectedAnswer
from appliance.domain.errors import MissingKey, UnknownModel
from appliance.terminal.failure import CommandFailed

REQUEST = httpx.Request("GET", "http://box:8080/v1/models")


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (CommandFailed("do it so"), "do it so"),
        (UnknownModel(name="net"), "there is no model 'net'"),
        (MissingKey(), "--key or APPLIANCE_KEY"),
        (FileNotFoundError(2, "No such file", "net.onnx"), "there is no file 'net.onnx'"),
        (PermissionError(13, "Denied", "net.onnx"), "cannot be opened"),
        (OSError(28, "No space left on device", "box.tar"), "'box.tar': No space left on device"),
        (httpx.ConnectError("refused", request=REQUEST), "no box answers at http://box:8080; start one"),
        (httpx.ConnectError("CERTIFICATE_VERIFY_FAILED", request=REQUEST), "--ca FILE"),
        (httpx.ReadTimeout("", request=REQUEST), "the connection to http://box:8080 broke (ReadTimeout)"),
        (httpx.ReadError("gone"), "the connection to its address broke (gone)"),
        (UnexpectedAnswer(502, "Bad Gateway"), "check --url"),
    ],
)
def test_a_known_error_is_one_sentence(error: Exception, part: str) -> None:
    """It names the thing and what to do, on one line."""
    sentence = sentence_of(error)
    assert sentence is not None
    assert part in sentence
    assert "\n" not in sentence


def test_our_own_mistakes_keep_their_traceback() -> None:
    """A bug is not dressed up as the caller's."""
    assert sentence_of(KeyError("x")) is None
