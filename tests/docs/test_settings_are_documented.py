"""The settings table of the operator's guide names every setting, with the meaning that the code gives it."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from appliance.settings import Settings

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"


def _fields(model: type[BaseModel], prefix: str = "APPLIANCE_") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields(kind, f"{prefix}{name.upper()}__")
        else:
            yield prefix + name.upper(), " ".join((field.description or "").split())


def test_every_setting_is_documented() -> None:
    """Name and meaning stand in one row; a changed docstring asks for a changed guide."""
    rows = [line for line in GUIDE.read_text().splitlines() if line.startswith("| `APPLIANCE_")]
    documented = {row.split("`")[1]: row for row in rows}
    wanted = dict(_fields(Settings))
    assert documented.keys() == wanted.keys()
    for name, meaning in wanted.items():
        assert meaning, f"{name} has no docstring"
        assert documented[name].endswith(f" | {meaning} |"), name
