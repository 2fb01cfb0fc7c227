"""Errors as one sentence that says what to do."""

from http.client import RemoteDisconnected

import httpx
import pytest

from appliance.cli.faults import sentence_of, status_of
from appliance.client import UnexpectedAnswer
from appliance.client.errors import NoAnswer
from appliance.domain.errors import MissingKey, UnknownModel
from appliance.terminal.failure import CommandFailed, SettingsUnfit

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
        (httpx.ReadTimeout("", request=REQUEST), "the box at http://box:8080 did not answer in time"),
        (TimeoutError("timed out"), "the box at that address did not answer in time"),
        (NoAnswer("http://box:8080", 20.0), "the box at http://box:8080 did not answer within 20 s; it may be busy"),
        (httpx.ReadError("gone"), "the connection to that address broke (gone)"),
        (RemoteDisconnected("closed"), "the connection to that address broke (closed); try again"),
        (UnexpectedAnswer(502, "Bad Gateway"), "check --url"),
    ],
)
def test_known_error_is_one_sentence_with_the_remedy(error: Exception, part: str) -> None:
    """On one line."""
    sentence = sentence_of(error)
    assert sentence is not None
    assert part in sentence
    assert "\n" not in sentence


def test_time_out_has_exit_status_75() -> None:
    """So that a script tells a box that may answer later from an error that a repetition will not mend."""
    for error in (NoAnswer("http://box:8080", 20.0), TimeoutError(), httpx.ReadTimeout("", request=REQUEST)):
        assert status_of(error) == 75
    for other in (httpx.ConnectError("refused", request=REQUEST), UnknownModel(name="net"), CommandFailed("so")):
        assert status_of(other) == 1
    assert status_of(SettingsUnfit("so")) == 78


def test_unexpected_exception_keeps_its_traceback() -> None:
    """A bug of the command line is not shown as a mistake of the caller."""
    assert sentence_of(KeyError("x")) is None
