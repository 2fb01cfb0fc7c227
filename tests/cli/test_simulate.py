"""`appliance simulate`: figures for a person and for a program, and one line with status 2 for a bad scenario."""

import json
from pathlib import Path

from typer.testing import CliRunner

from appliance.cli.main import app
from tests.lab.scenarios import document


def _write(folder: Path, **changes: object) -> str:
    path = folder / "scenario.json"
    path.write_text(json.dumps(document(**changes)))
    return str(path)


def test_simulate_json_prints_only_the_document_on_standard_output(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["simulate", _write(tmp_path), "--json", "--duration-s", "30", "--seed", "4"])
    assert (done.exit_code, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["requests"] > 0
    assert list(figures)[:5] == ["requests", "warm", "cold", "failed", "dropped"]


def test_simulate_prints_a_table_without_json(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["simulate", _write(tmp_path), "--policy", "eviction=none"])
    assert done.exit_code == 0
    assert {"door", "captions", "all"} <= {line.split(" ")[0] for line in done.stdout.splitlines()}
    assert "evictions" in done.stderr


def test_simulate_summary_has_wakes_and_waits(tmp_path: Path) -> None:
    """Two models that do not fit together take turns: loads of 100 ms, the second after 10 of sleep, then sleep and
    wake, 20 each.
    """
    variant = {"name": "v", "size_mb": 60, "accuracy": 90, "load_ms": 100, "asleep_mb": 5, "wake_ms": 10}
    scenario = _write(
        tmp_path,
        duration_s=4.5,
        box={"memory_mb": 100, "processors": [{"name": "cpu"}]},
        models=[{"name": name, "variants": [{**variant, "latency_ms": {"cpu": {"1": 20}}}]} for name in "ab"],
        applications=[{"name": name, "model": name} for name in "ab"],
        policies={"eviction": "lru"},
        arrivals=[{"application": "a", "times_s": [1, 3]}, {"application": "b", "times_s": [2, 4]}],
    )
    done = CliRunner().invoke(app, ["simulate", scenario])
    assert "2 loads, 2 wakes, 0 replacements, 3 evictions" in done.stderr
    assert "wait 62.5 ms in the mean, 110.0 at P99" in done.stderr


def test_simulate_reference_adds_the_clairvoyant_bounds(tmp_path: Path) -> None:
    scenario = _write(tmp_path)
    done = CliRunner().invoke(app, ["simulate", scenario, "--json", "--duration-s", "30", "--reference"])
    figures = json.loads(done.stdout)
    best = figures["clairvoyant"]
    assert figures["utility"] <= best["utility_most"]
    assert best["utility_reached"] <= best["utility_most"]
    assert best["cold_least"] <= best["cold_reached"]
    done = CliRunner().invoke(app, ["simulate", scenario, "--duration-s", "30", "--reference"])
    assert f"utility {best['utility_reached']:.2f}" in done.stderr


def test_simulate_of_bad_scenario_prints_one_line_and_exits_2(tmp_path: Path) -> None:
    for arguments, sentence in [
        ([_write(tmp_path), "--duration-s", "0"], "duration_s: must be > 0"),
        ([_write(tmp_path), "--policy", "eviction=magic"], "policies.eviction: 'magic' is not one of"),
        ([_write(tmp_path), "--policy", "magic"], "--policy: 'magic' is not in the form FAMILY=NAME"),
        ([_write(tmp_path, arrivals=[]), "--reference"], "--reference: no arrivals"),
        ([str(tmp_path / "none.toml")], f"{tmp_path / 'none.toml'}: cannot be read: No such file"),
    ]:
        done = CliRunner().invoke(app, ["simulate", *arguments])
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(sentence)
        assert done.stderr.count("\n") == 1


def test_simulate_without_scenario_exits_2() -> None:
    done = CliRunner().invoke(app, ["simulate"])
    assert (done.exit_code, done.stdout) == (2, "")
