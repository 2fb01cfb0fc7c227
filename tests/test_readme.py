"""The commands of the README and of the tour do what the documents say.

All console blocks of a document run in order, in one shell, in a folder laid out like a checkout.
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
"""The documents' port; in the tests the box takes a free one and says which."""
SERVES = "scripts/appliance serve"
README = ROOT / "README.md"
TOUR = ROOT / "docs" / "tour.md"


def blocks(document: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language, in order."""
    return [text for found, text in BLOCK.findall(document.read_text()) if found == language]


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Return (command, lines of output shown) of a console block; a backslash continues the command."""
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


def scene(document: Path, folder: Path) -> str:
    """Lay out `folder` like a checkout and return the shell script; a line `== N` on standard output goes before
    command N.
    """
    for name in ("scripts", "tests", ".venv"):
        (folder / name).symlink_to(ROOT / name)
    saved = []
    for block in (*blocks(document, "python"), *blocks(document, "toml")):
        if block.startswith("# "):  # the name of a file
            saved.append(block.splitlines()[0].removeprefix("# "))
            (folder / saved[-1]).write_text(block)
    lines = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"]
    for number, (command, _) in enumerate(story(document)):
        lines.append(f"echo; echo '== {number}'")
        if command.startswith(SERVES):
            lines += [
                command.replace(f"--port {PORT}", "--port 0"),
                "while kill -0 $! && ! [ -s state/address ]; do sleep 0.1; done",
                "port=$(sed 's/.*://' state/address)",
                *([f'sed -i "s/{PORT}/$port/" {" ".join(saved)}'] if saved else []),
            ]
        else:
            lines.append(command.replace(str(PORT), "$port"))
    return "\n".join(lines) + "\n"


def story(document: Path) -> list[tuple[str, list[str]]]:
    """Return all commands of a document with their output."""
    return [pair for block in blocks(document, "console") for pair in commands(block)]


def run(document: Path, folder: Path) -> list[str]:
    """Run the commands of a document, compare what it shows, and return what each command printed."""
    skip_if(lacks_tools({"curl": "curl"}))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("APPLIANCE_")}
    shell = subprocess.run(
        ["bash", "-c", scene(document, folder)],
        cwd=folder,
        env={**environment, "XDG_STATE_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    box_log = (folder / "box.log").read_text() if (folder / "box.log").exists() else ""
    assert shell.returncode == 0, f"{shell.stdout}\n{shell.stderr}\n{box_log[-2000:]}"
    said = dict(re.findall(r"^== (\d+)\n(.*?)(?=^== |\Z)", shell.stdout, re.MULTILINE | re.DOTALL))
    told = story(document)
    answers = [said[str(number)] for number in range(len(told))]
    for (command, shown), answer in zip(told, answers, strict=True):
        for line in shown:
            assert _pattern(line).search(answer), f"{command}: {document.name} shows {line!r}, the command:\n{answer}"
    return answers


@pytest.mark.usefixtures("processes", "ports")
@pytest.mark.timeout(600)
def test_readme_commands_give_first_answer(tmp_path: Path) -> None:
    answers = run(README, tmp_path)
    assert len(answers) <= 5


@pytest.mark.usefixtures("processes", "ports")
@pytest.mark.timeout(600)
def test_tour_commands_work(tmp_path: Path) -> None:
    """A box, a tenant, a key, a model, and calls by command line, curl and tritonclient, as the tour shows them."""
    answers = run(TOUR, tmp_path)
    assert '"label":"3"' in answers[_number_of("/predict")]
    assert answers[_number_of("/numbers/predict")].count('"label":"2"') >= 2  # the page shows 0226
    assert "by variant " in answers[_number_of("call.py")]
    assert '"outputs"' in answers[_number_of("/infer")]
    assert (tmp_path / "box.tar").stat().st_size > 10_000


def test_documented_commands_exist_and_have_help(capsys: pytest.CaptureFixture[str]) -> None:
    shown = [command for document in (README, TOUR) for command, _ in story(document)]
    nouns = {command.split()[1] for command in shown if command.startswith("scripts/appliance ")}
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
    return next(number for number, (command, _) in enumerate(story(TOUR)) if part in command)
