"""Memory as a picture: the bar, rows and their letters, in eighty columns."""

from typing import Any

import pytest
from rich.console import Console

from appliance.cli.memory_text import FREE, bar, duration, megabytes, picture
from appliance.wire.box import BesideShape, BuildShape, ExpectationShape, HoldingShape, MemoryShape, ResidencyShape
from tests.cli.blank import blank


def _build(size: int, *applications: str, **changed: Any) -> BuildShape:
    facts = {"variant": "int8", "state": "resident", "bytes": size, "idle_ms": 1500.0, "applications": [*applications]}
    return blank(BuildShape, **facts | changed)


def _memory(*builds: BuildShape, budget: int = 100_000_000) -> MemoryShape:
    def place(name: str, set_: str, expected_in_ms: float | None) -> ExpectationShape:
        return blank(ExpectationShape, application=name, set=set_, variants=["int8"], expected_in_ms=expected_in_ms)

    places = [place("harbour/face", "maximalist", 320.0), place("museum/sound", "minimalist", None)]
    return blank(
        MemoryShape,
        budget_bytes=budget,
        used_bytes=sum(one.bytes for one in builds),
        loads=3,
        builds=builds,
        tenants=[blank(HoldingShape, tenant="harbour", held_bytes=50_000_000, ceiling_bytes=60_000_000)],
        residency=blank(ResidencyShape, applications=places),
    )


def _shown(memory: MemoryShape, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=None, highlight=False, force_terminal=False, quiet=False)
    with console.capture() as capture:
        console.print(picture(memory, width))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize(
    ("sizes", "drawn"),
    [
        ([50, 25], "[AAAAABBB··]"),
        ([100], "[AAAAAAAAAA]"),
        ([], f"[{FREE * 10}]"),
        ([90, 1, 1], "[AAAAAAAAA·]"),
        ([150, 50], "[AAAAAAAABB]"),
    ],
)
def test_memory_bar_is_scaled_to_the_budget(sizes: list[int], drawn: str) -> None:
    """Half and a quarter; all; nothing; what is smaller than half a cell; more than the budget (while it shrinks)."""
    memory = _memory(*(_build(size) for size in sizes), budget=100)
    assert bar(memory, memory.builds, 12).plain == drawn


def test_memory_bar_and_key_add_up_to_what_is_used() -> None:
    """72 % is used, of which builds that this key sees take 18 %."""
    memory = _memory(_build(18), budget=100).model_copy(
        update={"used_bytes": 72, "overhead_bytes": 30, "beside": [BesideShape(of="guards", bytes=30)]}
    )
    drawn = bar(memory, memory.builds, 102).plain
    assert [drawn.count(mark) for mark in ("A", "?", "+", FREE)] == [18, 24, 30, 28]
    shown = _shown(memory)
    assert "+ other processes: guards 30 B" in shown
    assert "? models of other tenants: 24 B" in shown


@pytest.mark.parametrize(("runs", "counted"), [(10, 10), (60, 28)])
def test_memory_bar_counts_runs_in_the_free_part_of_the_budget(runs: int, counted: int) -> None:
    """28 of 100 are free; what runs take beyond that, the machine has beside the budget."""
    memory = _memory(_build(72), budget=100).model_copy(update={"runs_bytes": runs})
    drawn = bar(memory, memory.builds, 102).plain
    assert [drawn.count(mark) for mark in ("A", "%", FREE)] == [72, counted, 28 - counted]
    assert f"% runs under way: {counted} B" in _shown(memory)


def test_memory_row_shows_build_window_expectation_and_pins() -> None:
    """An application that shares a build has a row, too; an absent application comes last."""
    memory = _memory(_build(50_000_000, "harbour/face", "harbour/gate", pins=2, variant="fp32"))
    rows = [line.split() for line in _shown(memory)]
    assert ["A", "harbour/face", "fp32", "50.0", "resident", "inside", "0.3", "s", "2", "1.5", "s"] in rows
    assert ["A", "harbour/gate", '"', '"', '"', "–", "–", '"', '"'] in rows
    assert ["museum/sound", "–", "–", "absent", "outside", "–", "–", "–"] in rows
    assert ["harbour", "50.0", "MB", "50%", "–", "60.0", "MB"] in rows


def test_memory_heading_shows_memory_of_guards_if_any() -> None:
    """The memory of guards counts against the budget and is no build."""
    memory = _memory(_build(50_000_000))
    assert _shown(memory)[0].startswith("50.0 MB of 100.0 MB, 1 build;")
    guarded = memory.model_copy(update={"used_bytes": 68_000_000, "overhead_bytes": 18_000_000})
    assert _shown(guarded)[0].startswith("68.0 MB of 100.0 MB, of which other processes take 18.0 MB, 1 build;")


def test_memory_heading_shows_sleeping_builds_and_wakes_if_any() -> None:
    memory = _memory(_build(50_000_000), _build(700_000, state="asleep"))
    shown = _shown(memory.model_copy(update={"asleep_bytes": 700_000, "wakes": 7}), 160)
    assert shown[0].startswith("50.7 MB of 100.0 MB, 2 builds, of them 1 asleep (700.0 kB); since the start 3 loads")
    assert "7 wakes" in shown[0]
    assert "asleep" not in _shown(_memory(_build(50_000_000)))[0]


def test_memory_picture_fits_in_eighty_columns() -> None:
    long = "a-tenant-with-a-long-name/an-application-with-a-longer-name"
    memory = _memory(*(_build(1_000_000 + n, f"{long}{n}", pins=9) for n in range(60)))
    shown = _shown(memory)
    assert max(map(len, shown)) <= 80
    assert any(line.startswith("# ") for line in shown)


def test_duration_is_in_seconds_or_minutes() -> None:
    assert [duration(ms) for ms in (None, 320.0, -2000.0, 119_000.0, 180_000.0)] == [
        "–",
        "0.3 s",
        "-2.0 s",
        "119.0 s",
        "3 min",
    ]


@pytest.mark.parametrize(
    ("size", "told"),
    [(0, "0.0"), (50, "< 0.0001"), (100, "0.0001"), (32_800, "0.033"), (50_000, "0.1"), (22_940_000, "22.9")],
)
def test_small_build_is_not_shown_as_zero_megabytes(size: int, told: str) -> None:
    assert megabytes(size) == told
