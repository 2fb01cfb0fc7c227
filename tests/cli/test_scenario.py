"""A scenario document as TOML: what a reader of TOML gets back is the document."""

import tomllib

from appliance.cli.scenario import RUNS_KEPT, RUNS_MIN, evenly, served_ms, toml_of
from appliance.runtime.telemetry import RECENT_RUNS
from tests.lab.scenarios import document


def test_toml_reads_back_as_the_document() -> None:
    """Nested lists of tables, inline tables with numbers as keys, empty lists, names that need quotes and escapes."""
    written = document(tenants=[], policies={"eviction": "lru"})
    written["applications"][0] |= {"name": 'a "door"\n\\ é', "weight": 1.0, "shared": True, "tags": ["x", 2]}
    assert tomllib.loads(toml_of(written)) == written


def test_many_run_times_become_a_thousand_that_say_the_same() -> None:
    """What an application keeps of its runs stays as it is, so that its slowest hundredth is not cut; of many the
    middle, the ends and the mean stay.
    """
    assert evenly([1.0, 2.0, 9.0]) == [1.0, 2.0, 9.0]
    recent = [float(i) for i in range(RECENT_RUNS)]
    assert evenly(recent) == recent
    kept = evenly([float(i) for i in range(10 * RUNS_KEPT)])
    assert len(kept) == RUNS_KEPT
    assert kept == sorted(kept)
    assert (kept[0], kept[500], kept[-1]) == (5, 5005, 9995)


def test_few_run_times_do_not_go_before_the_profile() -> None:
    assert served_ms("cpu", [1.0] * (RUNS_MIN - 1)) == {}
    assert served_ms("cpu", [2.0, 1.0] * RUNS_MIN) == {"cpu": [1.0] * RUNS_MIN + [2.0] * RUNS_MIN}
