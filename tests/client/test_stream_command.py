"""`appliance stream` against a box that speaks the grammar: what is asked for, what is told, what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import pytest

from appliance.cli.main import main
from tests.fakes.session_box import DECISIONS, SessionBox, session_box
from tests.instances.scenes import scene

KEYS = (
    "name state promise windows kept captured sent answered late dropped lost skipped p50_ms p99_ms interval_mean "
    "drop_mean accuracy_mean reconnects cpu_ms_per_frame"
)


@pytest.fixture
def box(ports: None) -> Iterator[SessionBox]:
    def answer(frame: int, body: bytes) -> dict[str, Any]:
        box = [100.0, 100.0, 200.0, 180.0]
        return {"objects": [{"label": "cat", "score": 0.9, "box": box}], "accuracy": 0.5}

    with session_box(answer) as box:
        yield box


@pytest.fixture
def photo(tmp_path: Path) -> str:
    path = tmp_path / "photo.png"
    cv2.imwrite(str(path), scene(1)[:400, :500])
    return f"pan:{path}"


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["stream", *arguments])
    return int(end.value.code or 0)


def test_stream_command_reports_each_device_as_json(
    box: SessionBox, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every key of the document; every frame counted once."""
    options = ["-a", "street", "--slo-ms", "3000", "--devices", "2", "--duration-s", "3", "--fps", "20"]
    assert _run(photo, *options, "--url", box.url, "--key", "k", "--tenant", "harbour", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [sorted(session) for session in document["sessions"]] == [sorted(KEYS.split())] * 2
    assert document["plans"] == DECISIONS
    for number, session in enumerate(document["sessions"]):
        assert session["name"] == f"stream-{number + 1}"
        assert session["state"] == "served"
        assert session["promise"] == {"kind": "latency", "slo_ms": 3000.0, "rate_rps": 20.0}
        assert session["captured"] == session["sent"] + session["skipped"] > 0
        ends = [session[end] for end in ("answered", "late", "dropped", "lost")]
        assert session["sent"] == sum(ends)
        assert session["answered"] > 0
        assert session["accuracy_mean"] == 0.5
        assert (session["windows"], session["kept"]) == (2, 1)
    assert box.keys == ["Bearer k"] * 2
    assert box.ended == ["s-1"] * 2


def test_stream_command_prints_a_table_of_promise_and_kept_windows(
    box: SessionBox, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(photo, "-a", "street", "--drop", "0.05", "--duration-s", "1", "--url", box.url) == 0
    shown = capsys.readouterr().out
    assert "drop ≤ 0.05" in shown
    assert "1 of 2" in shown


def test_stream_command_refuses_bad_source_promise_or_box(
    box: SessionBox, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence each, and nothing begun: no source, a promise that the box refuses, no promise, no box."""
    assert _run("pan:nowhere.jpg", "-a", "street", "--slo-ms", "100", "--url", box.url) == 1
    assert "nowhere.jpg is no picture, or is not there" in capsys.readouterr().err
    assert _run("nowhere.mp4", "-a", "street", "--slo-ms", "100", "--url", box.url) == 1
    assert "there is no file nowhere.mp4" in capsys.readouterr().err
    assert box.orders == []
    assert _run(photo, "-a", "street", "--url", box.url) == 2
    assert _run(photo, "-a", "street", "--slo-ms", "100", "--drop", "0.1", "--url", box.url) == 2
    capsys.readouterr()
    box.refusal = {"type": "/problems/unknown-application", "title": "x", "status": 404, "name": "street"}
    assert _run(photo, "-a", "street", "--slo-ms", "100", "--url", box.url) == 1
    assert "street" in capsys.readouterr().err
    assert _run(photo, "-a", "street", "--slo-ms", "100", "--url", "http://127.0.0.1:9") == 1
    assert "no box answers" in capsys.readouterr().err


def test_stream_command_repeats_a_video_shorter_than_the_duration(
    box: SessionBox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 20.0, (320, 240))
    picture = scene(2)
    for number in range(10):
        writer.write(picture[number : number + 240, :320].copy())
    writer.release()
    options = ["-a", "street", "--slo-ms", "3000", "--duration-s", "2.5", "--json"]
    assert _run(str(path), *options, "--url", box.url) == 0
    assert json.loads(capsys.readouterr().out)["sessions"][0]["captured"] > 10


def test_stream_command_takes_either_pipeline_or_application(
    box: SessionBox, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both, or neither, is a usage error."""
    options = ["--slo-ms", "3000", "--duration-s", "0.5", "--fps", "10", "--url", box.url, "--key", "k", "--json"]
    assert _run(photo, "--pipeline", "signs", *options) == 0
    assert box.orders[0]["pipeline"] == "signs"
    assert "application" not in box.orders[0]
    assert _run(photo, "--pipeline", "signs", "-a", "street", *options) == 2
    assert _run(photo, *options) == 2
