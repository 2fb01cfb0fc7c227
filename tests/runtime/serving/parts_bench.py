"""A network in three parts on a bench of two kinds of processors: what tests of networks in parts begin with."""

from dataclasses import replace
from typing import Any

from appliance.domain.catalogue import Late, Variant
from appliance.domain.names import part_build_id
from appliance.domain.parts import BatchTime, Cut, Part, PartProfile
from appliance.domain.request import Tensors
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import change

OTHER = "npu"
TAKES = ({"cpu": 4.0, OTHER: 2.0}, {"cpu": 1.0}, {"cpu": 6.0, OTHER: 3.0})
"""Of each part, by the kinds that run it: milliseconds."""


def network(inputs: Tensors) -> dict[str, Any]:
    """y = 3 (x + 1) - 2, in three steps; whoever has a tensor on the way goes on from there."""
    there: dict[str, Any] = dict(inputs)
    if "x" in there:
        there["a"] = there["x"] + 1
    if "a" in there:
        there["b"] = there["a"] * 3
    if "b" in there:
        there["y"] = there["b"] - 2
    return there


def part(takes_ms: dict[str, float], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Part:
    profiles = tuple(PartProfile(kind, (BatchTime(1, took_ms),), True, 5, 6) for kind, took_ms in takes_ms.items())
    return Part(1, {}, inputs, outputs, 4, 1.0, 4, profiles)


CUT = Cut(
    {"cpu": "", OTHER: ""},
    tuple(part(*one) for one in zip(TAKES, (("x",), ("a",), ("b",)), (("a",), ("b",), ("y",)), strict=True)),
)


def bench_of(*, whole_ms: float = 20, cut: bool = True, **facts: Any) -> EngineBench:
    """One variant that the other kind does not run whole."""
    bench = EngineBench(other_kind=OTHER, model=network, **facts)
    bench.add({"v": Cost(run_ms=whole_ms, load_ms=5)})
    bench.follow_kinds()
    bench.member.serve()
    for number, takes_ms in enumerate(TAKES):
        for kind, took_ms in takes_ms.items():
            processor = bench.processor if kind == "cpu" else bench.other
            build = part_build_id(variant_of(bench).content_sha256, number, kind)
            processor.costs[build] = Cost(resident_bytes=5, peak_bytes=6, load_ms=5, run_ms=took_ms)
    if cut:
        is_cut(bench)
    return bench


def variant_of(bench: EngineBench) -> Variant:
    return bench.catalogue.entry("t/app").model.variants[0]


def is_cut(bench: EngineBench, cut: Cut = CUT) -> None:
    """The import has cut it."""
    change(bench, cut=cut)


def runs_late(bench: EngineBench) -> None:
    """Requests are answered whenever they are done."""
    bench.catalogue.put_application(replace(bench.catalogue.entry("t/app").application, late=Late.RUN))


def ran(bench: EngineBench) -> list[int]:
    """Runs of each kind."""
    return [len(bench.processor.ran), len(bench.other.ran)]


def in_memory(bench: EngineBench) -> set[str]:
    return {*bench.processor.memory, *bench.other.memory}
