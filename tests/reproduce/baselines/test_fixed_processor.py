"""Where the parts of a chain run that is fixed to a processor: Figure 9 of the Band paper."""

from dataclasses import dataclass

from reproduce.baselines.fixed_processor import max_partition, until_first_fallback

CPU, NPU = frozenset(("cpu",)), frozenset(("npu",))


@dataclass(frozen=True)
class Part:
    processors: frozenset[str]


PARTS = [Part(CPU | NPU), Part(CPU), Part(CPU | NPU)]


def test_fixed_chain_runs_on_the_cpu_after_its_first_fallback() -> None:
    assert until_first_fallback(PARTS, NPU, CPU) == [NPU, CPU, CPU]


def test_maximal_partition_returns_to_its_processor_after_a_fallback() -> None:
    assert max_partition(PARTS, NPU, CPU) == [NPU, CPU, NPU]


def test_chain_fixed_to_the_cpu_has_no_fallback() -> None:
    assert until_first_fallback(PARTS, CPU, CPU) == max_partition(PARTS, CPU, CPU) == [CPU, CPU, CPU]
