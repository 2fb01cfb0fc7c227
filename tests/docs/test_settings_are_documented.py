"""The settings table of the operator's guide names every setting, with the meaning that the code gives it."""

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from appliance.policies.adaptation import ADAPTATION_POLICIES
from appliance.policies.allocation import ALLOCATION_POLICIES
from appliance.policies.batching import BATCHING_POLICIES
from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.selection import SELECTION_POLICIES
from appliance.settings import PolicySettings, Settings

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"

FAMILIES: dict[str, Collection[str]] = {
    "adaptation": ADAPTATION_POLICIES,
    "allocation": ALLOCATION_POLICIES,
    "batching": BATCHING_POLICIES,
    "dispatch": DISPATCH_POLICIES,
    "eviction": EVICTION_POLICIES,
    "offload": OFFLOAD_POLICIES,
    "selection": SELECTION_POLICIES,
}


def _fields(model: type[BaseModel], prefix: str = "APPLIANCE_") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields(kind, f"{prefix}{name.upper()}__")
        else:
            yield prefix + name.upper(), " ".join((field.description or "").split())


def test_operations_guide_documents_every_setting() -> None:
    """Name and meaning stand in one row; a changed docstring asks for a changed guide."""
    rows = [line for line in GUIDE.read_text().splitlines() if line.startswith("| `APPLIANCE_")]
    documented = {row.split("`")[1]: row for row in rows}
    wanted = dict(_fields(Settings))
    assert documented.keys() == wanted.keys()
    for name, meaning in wanted.items():
        assert meaning, f"{name} has no docstring"
        assert documented[name].endswith(f" | {meaning} |"), name


@pytest.mark.parametrize("family", sorted(PolicySettings.model_fields))
def test_policy_setting_description_names_every_policy(family: str) -> None:
    described = PolicySettings.model_fields[family].description or ""
    assert [name for name in FAMILIES[family] if f"`{name}`" not in described] == []
