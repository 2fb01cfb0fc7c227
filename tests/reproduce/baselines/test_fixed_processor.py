"""Where the parts of a chain run that is fixed to a processor: Figure 9 of the Band paper."""

from dataclasses import dataclass

from reproduce.baselines.fixed_processor import max_partition, until_first_fallback

CPU, NPU = frozenset(("cpu",)), frozenset(("npu",))


@dataclass(frozen=True)
class Part:
    processors: frozenset[str]


PARTS = [Part(CPU | NPU), Part(CPU), Part(CPU | NPU)]


def test_after_the_first_fallback_all_runs_on_the_cpu() -> None:
    assert until_first_fallback(PARTS, NPU, CPU) == [NPU, CPU, CPU]


def test_a_maximal_partition_comes_back() -> None:
    assert max_partition(PARTS, NPU, CPU) == [NPU, CPU, NPU]


def test_at_home_on_the_cpu_nothing_falls_back() -> None:
    assert until_first_fallback(PARTS, CPU, CPU) == max_partition(PARTS, CPU, CPU) == [CPU, CPU, CPU]
