"""The table of packages: sound entries, small zoos that stay small, and licences written down."""

import re
from pathlib import Path

import pytest

from appliance.demo.zoo.catalogue import BY_KEY, CARRIERS, ZOOS, ZooName, carriers_of, carriers_table, recipes_table
from appliance.demo.zoo.samples import MAKERS

DOCUMENT = Path(__file__).parents[3] / "docs" / "zoo.md"


def test_carrier_entries_are_valid_and_used() -> None:
    """Keys are unique, hashes are SHA-256, names stay below the carrier's folder, every carrier is used."""
    assert len(BY_KEY) == len(CARRIERS)
    for carrier in CARRIERS:
        assert carrier.files
        assert carrier.licence
        assert carrier.prefix.endswith("/")
        for taken in carrier.files:
            assert re.fullmatch("[0-9a-f]{64}", taken.sha256)
            assert taken.size_bytes > 0
            assert ".." not in Path(taken.name).parts
            assert not Path(taken.name).is_absolute()
    assert set(BY_KEY) == set().union(*(carriers_of(name) for name in ZOOS))


def test_catalogue_networks_have_samples_and_their_model_file() -> None:
    """A model is a listed file of its package, and the samples have a maker."""
    for recipe in (recipe for zoo in ZOOS.values() for recipe in zoo):
        assert recipe.samples in MAKERS
        if recipe.model:
            key, name = recipe.model.split("/", maxsplit=1)
            assert name in {taken.name for taken in BY_KEY[key].files}


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


@pytest.mark.parametrize("table", [carriers_table, recipes_table])
def test_zoo_document_has_the_printed_tables(table: object) -> None:
    """docs/zoo.md lists every carrier with its licence and every model; write the printed table there when this
    fails.
    """
    assert callable(table)
    assert table() in DOCUMENT.read_text(encoding="utf-8"), table()
