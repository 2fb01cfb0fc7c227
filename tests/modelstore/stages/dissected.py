"""Networks dissected and cut in this process, as the stages do it in their children."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx

from appliance.modelstore import arrays
from appliance.modelstore.orders import CutMade, CutOrder, Dissected, DissectedOperator, DissectOrder
from appliance.modelstore.stages.cut import cut
from appliance.modelstore.stages.dissect import dissect
from appliance.modelstore.stages.running import Runner
from tests.modelstore.stages.stage_runs import quiet

Feeds = dict[str, np.ndarray]
Takes = Callable[[DissectedOperator], bool]


def dissected(source: str | Path, folder: Path, feeds: Feeds, *tables: str) -> Dissected:
    target = folder / "cut"
    target.mkdir(parents=True, exist_ok=True)
    inputs = arrays.save(target / "inputs.npz", feeds)
    return dissect(DissectOrder(str(source), str(target), inputs, tables), quiet)


def cut_by(found: Dissected, feeds: Sequence[Feeds], takes: Takes, ops_min: int = 7, units_max: int = 16) -> CutMade:
    """Cut for `cpu`, which takes all, and an accelerator."""
    folder = Path(found.model).parent
    files = [arrays.save(folder / f"inputs{place}.npz", one) for place, one in enumerate(feeds)]
    kinds = tuple(("cpu", "npu") if takes(one) else ("cpu",) for one in found.operators)
    order = CutOrder(found.model, str(folder), found.operators, kinds, tuple(files), ops_min, units_max)
    return cut(order, quiet)


def chained(made: CutMade, feeds: Feeds) -> Feeds:
    """What the units compute, one after the other."""
    there = dict(feeds)
    for unit in made.units:
        there |= Runner(unit.path).run({name: there[name] for name in unit.inputs})
    return there


def types_in(found: Dissected) -> dict[str, str]:
    """Operator type of each node."""
    return {node.name: node.op_type for node in onnx.load(found.model, load_external_data=False).graph.node}
