"""What settings say, in the words of the runtime."""

from pathlib import Path

import pytest

from appliance.configuration import runtime_config
from appliance.resources.memory import MemoryLimits
from appliance.settings import Settings
from tests.resources.kernel_files import MIB, memory_v1, memory_v2, version_1, version_2


def budget(root: Path, **memory: object) -> int:
    """Of a box that starts there, in MiB."""
    settings = Settings.model_validate({"memory": memory})
    return runtime_config(settings, MemoryLimits(root).now().available_bytes).budget_bytes // MIB


def test_memory_budget_in_container_is_a_share_of_the_limit_left(tmp_path: Path) -> None:
    """Of 512 MiB 312 are used, of which 200 are page cache; a budget that is set is taken as it is."""
    stat = {"inactive_file": 150 * MIB, "active_file": 50 * MIB}
    v2 = version_2(tmp_path / "v2", "/", {"": memory_v2(str(512 * MIB), 312 * MIB, **stat)})
    v1 = version_1(tmp_path / "v1", {"memory": "/a"}, {"memory/a": memory_v1(512 * MIB, 312 * MIB, **stat)})
    assert (budget(v2), budget(v1)) == (200, 200)
    assert budget(v2, budget_share=0.25) == 100
    assert budget(v2, budget_bytes=300 * MIB) == 300


@pytest.mark.parametrize(("available", "reserve"), [(400, 100), (1024, 256), (16_000, 256)])
def test_memory_reserve_is_a_quarter_in_a_small_container(available: int, reserve: int) -> None:
    assert runtime_config(Settings(), available * MIB).reserve_bytes == reserve * MIB


def test_memory_reserve_that_is_set_is_taken_unchanged() -> None:
    settings = Settings.model_validate({"memory": {"reserve_bytes": 0}})
    assert runtime_config(settings, 400 * MIB).reserve_bytes == 0
