"""docs/architecture.md names what is there: its links lead somewhere, its files and classes exist, and no package is
left out.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "appliance"
TEXT = (ROOT / "docs" / "architecture.md").read_text()
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.S))))
FILES = [
    word for word in QUOTED if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", word) and ("/" in word or word.endswith(".py"))
]
CLASSES = [word for word in QUOTED if re.fullmatch(r"[A-Z][a-z]+\w*", word)]


def defined() -> set[str]:
    """Names of every class of the package."""
    return {
        name for module in PACKAGE.rglob("*.py") for name in re.findall(r"^ *class (\w+)", module.read_text(), re.M)
    }


def rooms() -> list[str]:
    """Every folder of the package with modules in it, as a path below it."""
    folders = {module.parent.relative_to(PACKAGE) for module in PACKAGE.rglob("*.py")}
    return sorted(str(folder) for folder in folders if folder.parts and "versions" not in folder.parts)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT))))
def test_architecture_page_links_lead_to_existing_files(link: str) -> None:
    """Relative links of the page, seen from its folder."""
    assert link.startswith("http") or (ROOT / "docs" / link).exists()


@pytest.mark.parametrize("name", FILES)
def test_architecture_page_names_only_existing_files(name: str) -> None:
    """A path is one of the package, or of the project."""
    assert (PACKAGE / name).exists() or (ROOT / name).exists()


def test_architecture_page_names_only_existing_classes() -> None:
    known = defined()
    assert [name for name in CLASSES if name not in known] == []


@pytest.mark.parametrize("room", rooms())
def test_architecture_page_names_every_package(room: str) -> None:
    assert f"`{room}/`" in TEXT
