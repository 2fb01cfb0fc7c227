"""A box that takes connections and does not answer: what is asked again, and what a person is told."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import httpx
import pytest

from appliance.cli.main import main
from appliance.client import Client, sending
from appliance.client.device import Box, session
from appliance.client.errors import NoAnswer
from tests.instances.scenes import scene

pytestmark = pytest.mark.usefixtures("ports")

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


@dataclass
class SilentBox:
    """Reads requests, and answers them from the `silent`-th on."""

    listening: socket.socket
    silent: int = 1000
    asked: list[str] = field(default_factory=list)
    """Method and path of each."""
    open: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.open.append(connection)
            line = connection.makefile("rb").readline().decode()
            self.asked.append(line.rpartition(" ")[0])
            if len(self.asked) > self.silent:
                connection.sendall(ANSWER)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentBox]:
    """Clients wait for it for no longer than a test does."""
    monkeypatch.setattr(session, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(sending, "TIMEOUT", httpx.Timeout(0.2, connect=60.0))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = SilentBox(listening)
        thread = threading.Thread(target=made.serve)
        thread.start()
        try:
            yield made
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in made.open:
                one.close()


def test_device_repeats_idempotent_requests_after_a_time_out(silent: SilentBox) -> None:
    silent.silent = 1
    assert Box(silent.url).shown("s1") == {}
    assert silent.asked == ["GET /v1/sessions/s1"] * 2
    silent.silent = 3
    Box(silent.url).end("s1")
    assert silent.asked[2:] == ["DELETE /v1/sessions/s1"] * 2


def test_device_does_not_repeat_begin_of_session_after_a_time_out(silent: SilentBox) -> None:
    """The box may have begun the session."""
    with pytest.raises(NoAnswer, match=r"did not answer within 0\.2 s"):
        Box(silent.url).begin({})
    assert silent.asked == ["POST /v1/sessions"]


def test_client_repeats_only_reads_after_a_time_out(silent: SilentBox) -> None:
    with Client(silent.url) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.memory()
        assert silent.asked == ["GET /v1/memory"] * 2
        with pytest.raises(httpx.ReadTimeout):
            client.end_session("s1")
    assert silent.asked[2:] == ["DELETE /v1/sessions/s1"]


@pytest.mark.parametrize(
    "command", [["memory"], ["sessions", "list"], ["stream", "PHOTO", "-a", "a", "--slo-ms", "300"]]
)
def test_command_to_a_hanging_box_prints_a_sentence_and_exits_75(
    silent: SilentBox, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = tmp_path / "photo.png"
    cv2.imwrite(str(photo), scene(1)[:400, :500])
    arguments = [f"pan:{photo}" if one == "PHOTO" else one for one in command]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--url", silent.url, "--key", "k"])
    said = capsys.readouterr()
    assert end.value.code == 75
    assert said.out == ""
    [line] = said.err.splitlines()
    assert line.startswith(f"appliance: the box at {silent.url} did not answer")
