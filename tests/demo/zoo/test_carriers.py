"""The table of packages: sound entries, small zoos that stay small, and licences written down."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from appliance.demo.zoo.catalogue import BY_KEY, ZOOS, ZooName, carriers_of
from appliance.demo.zoo.samples import MAKERS

DOCUMENT = Path(__file__).parents[3] / "docs" / "zoo.md"


def test_carrier_entries_are_valid_and_used() -> None:
    """Hashes are SHA-256, names stay below the carrier's folder, every carrier is used."""
    for carrier in BY_KEY.values():
        assert carrier.files
        assert carrier.licence
        assert carrier.prefix.endswith("/")
        for name, (size_bytes, sha256) in carrier.files.items():
            assert re.fullmatch("[0-9a-f]{64}", sha256)
            assert size_bytes > 0
            assert ".." not in Path(name).parts
            assert not Path(name).is_absolute()
    assert set(BY_KEY) == set().union(*(carriers_of(name) for name in ZOOS))


def test_catalogue_networks_have_samples_and_their_model_file() -> None:
    """A model is a listed file of its package, and the samples have a maker."""
    for recipe in (recipe for zoo in ZOOS.values() for recipe in zoo):
        assert recipe.samples in MAKERS
        if recipe.model:
            key, name = recipe.model.split("/", maxsplit=1)
            assert name in BY_KEY[key].files


@pytest.mark.parametrize(("name", "limit_bytes"), [("small", 30e6), ("ci", 20e6)])
def test_downloads_of_small_zoos_stay_below_the_limit(name: ZooName, limit_bytes: float) -> None:
    """The downloads of a zoo, beyond the Python environment, stay below what is promised."""
    assert sum(BY_KEY[key].size_bytes for key in carriers_of(name)) < limit_bytes


def test_small_zoo_needs_pip_only() -> None:
    assert {BY_KEY[key].client for key in carriers_of("small")} == {"pip"}


@pytest.mark.parametrize(("name", "models_min"), [("demo", 7), ("small", 4), ("ci", 5)])
def test_zoos_have_several_tenants_and_unique_models(name: ZooName, models_min: int) -> None:
    """Each zoo has three tenants or enough models to tell tenants apart, and names are unique within a tenant."""
    recipes = ZOOS[name]
    assert len(recipes) >= models_min
    assert len({recipe.id for recipe in recipes}) == len(recipes)
    assert len({recipe.tenant for recipe in recipes}) >= (2 if name == "ci" else 3)


def packages_table() -> str:
    rows = []
    for one in BY_KEY.values():
        zoos = ", ".join(name for name in ZOOS if one.key in carriers_of(name))
        files = ", ".join(f"`{name}`" for name in one.files)
        rows.append((one.title, one.client, f"{one.size_bytes / 1e6:.1f}", zoos, one.licence, files))
    return markdown(("package", "client", "MB", "zoos", "licence", "files taken"), rows)


def networks_table() -> str:
    rows = [(name, one.tenant, f"`{one.name}`", one.task, one.show) for name, zoo in ZOOS.items() for one in zoo]
    return markdown(("zoo", "tenant", "model", "task", "look at"), rows)


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def test_zoo_document_has_the_tables_of_packages_and_networks() -> None:
    """docs/zoo.md lists every package with its licence and every network; write the table there when this fails."""
    document = DOCUMENT.read_text(encoding="utf-8")
    for table in (packages_table(), networks_table()):
        assert table in document, table
