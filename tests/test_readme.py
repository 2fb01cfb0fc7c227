"""The README's commands do what it says: all of its console blocks run in order, in one shell, in a folder laid out
like a checkout.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from appliance.cli.main import main
from tests.harness.lacking import lacks_tools, skip_if

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = 8080
"""The README's; here the box takes one that is free, and says which."""
SERVES = "scripts/appliance serve"


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return [text for found, text in BLOCK.findall((ROOT / "README.md").read_text()) if found == language]


def commands(block: str) -> list[tuple[str, list[str]]]:
    """(command, lines of output that the README shows) of a console block; a backslash goes on with the command."""
    found: list[tuple[str, list[str]]] = []
    is_open = False
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif is_open:
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        else:
            found[-1][1].append(line)
        is_open = found[-1][0].endswith("\\")
    return found


def scene(folder: Path) -> str:
    """Lay out `folder` like a checkout and return the shell script; a line `== N` on standard output goes before
    command N.
    """
    for name in ("scripts", ".venv"):
        (folder / name).symlink_to(ROOT / name)
    saved = []
    for block in (*blocks("python"), *blocks("toml")):
        saved.append(block.splitlines()[0].removeprefix("# "))
        (folder / saved[-1]).write_text(block)
    lines = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"]
    for number, (command, _) in enumerate(story()):
        lines.append(f"echo; echo '== {number}'")
        if command.startswith(SERVES):
            lines += [
                command.replace(f"--port {PORT}", "--port 0"),
                "while kill -0 $! && ! [ -s state/address ]; do sleep 0.1; done",
                "port=$(sed 's/.*://' state/address)",
                f'sed -i "s/{PORT}/$port/" {" ".join(saved)}',
            ]
        else:
            lines.append(command.replace(str(PORT), "$port"))
    return "\n".join(lines) + "\n"


def story() -> list[tuple[str, list[str]]]:
    """All commands of the README with their output."""
    return [pair for block in blocks("console") for pair in commands(block)]


@pytest.mark.usefixtures("processes", "ports")
@pytest.mark.timeout(600)
def test_readme_tour_commands_work(tmp_path: Path) -> None:
    """A box, a tenant, a key, a model, and calls by command line, curl and tritonclient: as the README tells it."""
    skip_if(lacks_tools({"curl": "curl"}))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("APPLIANCE_")}
    shell = subprocess.run(
        ["bash", "-c", scene(tmp_path)],
        cwd=tmp_path,
        env={**environment, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    box_log = (tmp_path / "box.log").read_text() if (tmp_path / "box.log").exists() else ""
    assert shell.returncode == 0, f"{shell.stdout}\n{shell.stderr}\n{box_log[-2000:]}"
    said = dict(re.findall(r"^== (\d+)\n(.*?)(?=^== |\Z)", shell.stdout, re.MULTILINE | re.DOTALL))
    answers = [said[str(number)] for number in range(len(story()))]
    for (command, shown), answer in zip(story(), answers, strict=True):
        for line in shown:
            assert _pattern(line).search(answer), f"{command}: the README shows {line!r}, but it said:\n{answer}"
    assert '"label":"3"' in answers[_number_of("/predict")]
    assert answers[_number_of("/numbers/predict")].count('"label":"2"') >= 2  # the page shows 0226
    assert "by variant " in answers[_number_of("call.py")]
    assert '"outputs"' in answers[_number_of("/infer")]
    assert (tmp_path / "box.tar").stat().st_size > 10_000


def test_readme_commands_exist_and_have_help(capsys: pytest.CaptureFixture[str]) -> None:
    nouns = {command.split()[1] for command, _ in story() if command.startswith("scripts/appliance ")}
    assert {"serve", "tenants", "keys", "import", "predict", "pipelines", "backup"} <= nouns
    for noun in nouns:
        with pytest.raises(SystemExit) as end:
            main([noun, "--help"])
        assert not end.value.code, noun
        assert f"appliance {noun}" in capsys.readouterr().out


def _pattern(line: str) -> re.Pattern[str]:
    """What a shown line says, with any number for each number and any spacing; `...` stands for anything."""
    if line == "...":
        return re.compile("")
    words = (re.sub(r"\d+(\\\.\d+)?", r"\\d+(\\.\\d+)?", re.escape(word)) for word in line.split())
    return re.compile(r"\s+".join(words))


def _number_of(part: str) -> int:
    return next(number for number, (command, _) in enumerate(story()) if part in command)
