"""Settings are read from the command line, the environment and a file, and say which of them it was."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.settings import HttpSettings, Settings


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "box.toml"
    file.write_text("[http]\nport = 1111\nkeep_alive_s = 5\n[queues]\nlen_max = 7\n[[processors]]\nworkers = 1\n")
    monkeypatch.setenv("APPLIANCE_CONFIG", str(file))
    monkeypatch.setenv("APPLIANCE_HTTP__PORT", "2222")
    monkeypatch.setenv("APPLIANCE_QUEUES__LEN_MAX", "9")


def described(settings: Settings) -> dict[str, tuple[Any, str]]:
    return {one["name"]: (one["value"], one["source"]) for one in settings.described()}


def test_setting_names_the_strongest_source() -> None:
    """Also where a weaker source has another value."""
    shown = described(Settings(http={"port": 3333}, state_dir=Path("/tmp/box")))
    assert shown["http.port"] == (3333, "option")
    assert shown["state_dir"] == ("/tmp/box", "option")
    assert shown["queues.len_max"] == (9, "environment")
    assert shown["http.keep_alive_s"] == (5.0, "file")
    assert shown["http.head_s"] == (10.0, "default")
    assert shown["processors"][1] == "file"
    assert shown["processors"][0][0]["workers"] == 1


def test_settings_section_may_be_given_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a branch of the tree, or as JSON."""
    monkeypatch.setenv("APPLIANCE_MEMORY", json.dumps({"loads_parallel_max": 3}))
    shown = described(Settings(http=HttpSettings(port=4444)))
    assert shown["http.port"] == (4444, "option")
    assert shown["http.host"] == ("127.0.0.1", "default")
    assert shown["memory.loads_parallel_max"] == (3, "environment")


def test_settings_copy_keeps_the_sources() -> None:
    """The command line makes a copy with an absolute state folder."""
    copy = Settings(http={"port": 3333}).model_copy(update={"state_dir": Path("/tmp/there")})
    assert described(copy)["http.port"] == (3333, "option")
    assert described(copy)["state_dir"] == ("/tmp/there", "default")


def test_settings_are_listed_once_and_described() -> None:
    """With their defaults."""
    rows = Settings().described()
    assert len({one["name"] for one in rows}) == len(rows) > 100
    processors = next(one for one in rows if one["name"] == "processors")
    assert processors["default"][0]["kind"] == "cpu"
    assert [one["name"] for one in rows if one["name"].startswith("http.") and not one["description"]] == []
