"""A scenario document as TOML: what a reader of TOML gets back is the document."""

import tomllib

from appliance.cli.scenario import RUNS_KEPT, evenly, toml_of
from tests.lab.scenarios import document


def test_toml_reads_back_as_the_document() -> None:
    """Nested lists of tables, inline tables with numbers as keys, empty lists, names that need quotes and escapes."""
    written = document(tenants=[], policies={"eviction": "lru"})
    written["applications"][0] |= {"name": 'a "door"\n\\ é', "weight": 1.0, "shared": True, "tags": ["x", 2]}
    assert tomllib.loads(toml_of(written)) == written


def test_many_run_times_become_a_hundred_that_say_the_same() -> None:
    """Few stay as they are; of many the middle, the ends and the mean stay."""
    assert evenly([1.0, 2.0, 9.0]) == [1.0, 2.0, 9.0]
    kept = evenly([float(i) for i in range(1000)])
    assert len(kept) == RUNS_KEPT
    assert kept == sorted(kept)
    assert (kept[0], kept[50], kept[-1]) == (5, 505, 995)
