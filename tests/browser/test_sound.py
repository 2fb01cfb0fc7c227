"""Trying an application with a sound: of the microphone, and of a file that a phone's own recorder has written."""

from pathlib import Path

import pytest

from tests.api.hand_written_networks import loudness
from tests.api.sounds import tones
from tests.browser.conftest import WIDTHS, Box, Tab

LISTENER = "listener"


@pytest.fixture(scope="module")
def listener(box: Box, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An application for which everything loud is speech."""
    network = loudness(tmp_path_factory.mktemp("listener") / "loudness.onnx")
    with box.server.client() as admin:
        job = admin.upload_model(network, LISTENER, "voice-activity", metadata={"precisions": []})
        assert [step.state for step in admin.follow_job(job.id)][-1] == "done"
    return LISTENER


@pytest.mark.parametrize("shape", WIDTHS)
def test_application_page_sends_three_seconds_of_microphone(tab: Tab, listener: str, shape: str) -> None:
    """The tones in them are found."""
    with tab(f"/applications/{listener}", shape=shape) as page:
        page.get_by_role("tab", name="Microphone").click()
        with page.expect_response("**/predict*") as answered:
            page.get_by_role("button", name="Record 3 seconds").click()
        assert answered.value.request.headers["content-type"] == "audio/wav"
        assert answered.value.status == 200
        found = page.get_by_role("table", name="Speech").locator("tbody tr")
        found.first.wait_for()
        assert found.count() >= 2
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[shape][0]


def test_application_page_converts_sound_files_to_wav(tab: Tab, listener: str, tmp_path: Path) -> None:
    """The box reads WAV alone; what the browser can read the page sends as WAV. A file without sound is refused, and
    the page says what to choose.
    """
    memo = tones(tmp_path / "memo.wav", rate=44_100, seconds=3).rename(tmp_path / "memo.m4a")
    words = tmp_path / "words.mp3"
    words.write_text("no sound at all")
    with tab(f"/applications/{listener}") as page:
        field = page.get_by_label("Picture, sound, text or tensors")
        with page.expect_response("**/predict*") as answered:
            field.set_input_files(memo)
        assert answered.value.request.headers["content-type"] == "audio/wav"
        assert answered.value.json()["segments"][0]["start_s"] == 0
        assert len(answered.value.json()["segments"]) == 3
        field.set_input_files(words)
        page.get_by_role("alert").get_by_text("a WAV sound").wait_for()
