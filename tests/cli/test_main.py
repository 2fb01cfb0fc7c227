"""The command line as a whole: quick, and every command teaches."""

import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from appliance.cli.main import app, main

HEAVY = ("numpy", "httpx", "fastapi", "onnx", "onnxruntime", "cv2", "sqlmodel", "uvicorn", "pydantic", "rich.live")


def _callbacks(group: typer.Typer) -> Iterator[tuple[str, str]]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield command.name or command.callback.__name__, str(command.help)
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        for name, text in _callbacks(inner.typer_instance):
            yield f"{inner.name} {name}", text


@pytest.mark.usefixtures("processes")
def test_help_imports_no_heavy_modules() -> None:
    """Start-up stays quick, because nothing large is imported before a command runs."""
    script = (
        "import sys\n"
        "from appliance.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "import" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "LOADED"


def _is_plain(text: str) -> bool:
    """Whether no control characters, as marks of a formatter, are left in it."""
    return not [sign for sign in text if unicodedata.category(sign) == "Cc" and sign != "\n"] and "\\b" not in text


@pytest.mark.parametrize(("name", "text"), list(_callbacks(app)))
def test_help_of_each_command_is_plain_text_with_a_sentence_and_examples(name: str, text: str) -> None:
    """Each example on a line of its own. A mark that the shown text loses would still stand in what other formatters
    show.
    """
    assert text.split(".", maxsplit=1)[0]
    assert f"appliance {name.split(maxsplit=1)[0]}" in text
    assert _is_plain(text)
    shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "100"})
    assert shown.exit_code == 0, shown.output
    assert _is_plain(shown.stdout)
    assert "[dim]" not in shown.stdout
    examples = [line.strip() for line in shown.stdout.splitlines() if "$ appliance" in line]
    assert examples
    assert all(line.startswith("$ appliance") and line.count("$ appliance") == 1 for line in examples)


@pytest.mark.parametrize("arguments", [[], *([group.name] for group in app.registered_groups)])
def test_help_of_each_command_group_is_plain_text(arguments: list[str]) -> None:
    shown = CliRunner().invoke(app, [*arguments, "--help"]).stdout
    assert _is_plain(shown)
    assert "[dim]" not in shown


@pytest.mark.usefixtures("ports")
def test_command_without_a_running_box_prints_a_sentence_and_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    """No program listens on port 9: the sentence says what to do, without a traceback."""
    with pytest.raises(SystemExit) as end:
        main(["models", "list", "--url", "http://127.0.0.1:9"])
    said = capsys.readouterr()
    assert end.value.code == 1
    assert said.out == ""
    assert said.err == (
        "appliance: no box answers at http://127.0.0.1:9; start one with 'appliance serve', or name another with "
        "--url\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["models", "list", "--nonsense"],
        ["no-such-noun"],
        ["predict", "faces"],
        ["keys", "create", "harbour", "--role", "king"],
    ],
)
def test_wrong_usage_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """So that a script tells wrong usage from an error of the command."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["zoo", "fetch", "large"], "there is no zoo 'large'; use one of demo, small, ci"),
        (["restore", __file__, "--state", "nowhere"], "this is no backup"),
        (["backup", "box.tar", "--state", "no-such-folder"], "there is no state folder"),
        (["keys", "rotate-admin", "--state", "no-such-folder"], "run this on the box itself"),
        (["import", __file__, "--metadata", "{labels"], "--metadata is no JSON"),
        (["import", __file__, "--metadata", "[1]"], "must be a JSON object"),
        (["serve", "--log-level", "loud"], "setting log.level"),
        (["serve", "--config", "[htp]\nport = 1"], "there is no setting htp;"),
        (["serve", "--config", "http__port = 1"], "there is no setting http__port;"),
        (["serve", "APPLIANCE_HTP__PORT=1"], "there is no setting htp (APPLIANCE_HTP__PORT);"),
        (["serve", "APPLIANCE_HTTP__PRT=1"], "there is no setting http.prt;"),
        (["serve", "--config", "[http]\nprt = 1"], "there is no setting http.prt;"),
        (["serve", "--config", "[http\n"], "box.toml is no TOML file"),
    ],
)
def test_failed_command_prints_one_sentence_and_its_exit_status(
    arguments: list[str],
    part: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sentence on standard error, status 1, nothing on standard output. Settings that do not fit have a status of
    their own, so that systemd does not start the box again and again, and takes no upgrade back. What follows
    `--config` is its text; with a `=` it is a variable of the environment.
    """
    for variable in [argument for argument in arguments if "=" in argument and "--config" not in arguments]:
        arguments = [argument for argument in arguments if argument != variable]
        monkeypatch.setenv(*variable.split("="))
    if "--config" in arguments:
        monkeypatch.setenv("APPLIANCE_CONFIG", "")  # the command sets it; here it is undone
        config = tmp_path / "box.toml"
        config.write_text(arguments[-1])
        arguments = [*arguments[:-1], str(config)]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr()
    assert end.value.code == (78 if arguments[0] == "serve" else 1)
    assert part in said.err
    assert said.out == ""


def test_decisions_list_refuses_unknown_kind() -> None:
    """An empty list would say that nothing of the kind was decided."""
    answer = CliRunner().invoke(app, ["decisions", "list", "--kind", "nosuch"], env={"COLUMNS": "200"})
    assert answer.exit_code == 2
    assert "'nosuch' is not one of 'residency', 'neighbours', 'admission', 'drop'" in answer.stderr
