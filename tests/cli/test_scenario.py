"""A scenario document as TOML: what a reader of TOML gets back is the document."""

import tomllib

from appliance.cli.scenario import toml_of
from tests.lab.scenarios import document


def test_toml_reads_back_as_the_document() -> None:
    """Nested lists of tables, inline tables with numbers as keys, empty lists, names that need quotes and escapes."""
    written = document(tenants=[], policies={"eviction": "lru"})
    written["applications"][0] |= {"name": 'a "door"\n\\ é', "weight": 1.0, "shared": True, "tags": ["x", 2]}
    assert tomllib.loads(toml_of(written)) == written
