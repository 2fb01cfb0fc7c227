"""The pages show commands that there are, with options that they have."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from appliance.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SHOWN = re.compile(r"(?:(?:scripts/|\$ |^ +|`|=)appliance|^appliance) ([a-z][^`|&;\n]*)", re.MULTILINE)
"""A command line in a block of code, or between quotes."""


def shown() -> list[tuple[str, str]]:
    """(Page, what it has after `appliance`)."""
    return [
        (str(page.relative_to(ROOT)), line.strip())
        for page in PAGES
        for line in SHOWN.findall(page.read_text().replace("\\\n", " "))
    ]


@pytest.mark.parametrize(("page", "line"), sorted(set(shown())))
def test_documented_command_exists_with_its_options(page: str, line: str) -> None:
    command: Any = get_command(app)
    words = line.split()
    while hasattr(command, "commands"):
        assert words, f"{page}: appliance {line}: which command?"
        found = command.commands.get(words.pop(0))
        assert found is not None, f"{page}: appliance {line}"
        command = found
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    options = {re.split(r"[=\]]", word)[0] for word in words if word.startswith("--")}
    assert options <= known | {"--help"}, f"{page}: appliance {line}"


def test_command_pattern_finds_commands_in_pages() -> None:
    assert len(shown()) > 30
