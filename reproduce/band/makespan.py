"""How quickly a set of requests could be done at the very best: each shared out at will over all sequences of subgraphs
and their processors.

A linear program: the requests of a network flow from nothing done to all done, a run is an arc that takes time on its
processor (the work, the call, the move of what was done elsewhere), and no processor has more than the makespan. That
runs are whole, and come one after another, is left out, so nothing can be quicker.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from appliance.policies.dispatch.partition import Partition
from appliance.policies.milp import Program
from reproduce.band.phone import MOVE_MS, PROCESSORS, Phone


def bound_ms(phone: Phone, networks: Sequence[str]) -> float:
    """A lower bound on the time to run these, on idle processors without noise."""
    program = Program()
    end = program.column(1e9)
    busy: dict[str, dict[int, float]] = {processor: {end: -1.0} for processor in PROCESSORS}
    for name, count in sorted(Counter(networks).items()):
        _flow(program, phone, name, count, busy)
    for terms in busy.values():
        program.at_most(0.0, terms)
    return program.least({end: 1.0}).value


def _flow(program: Program, phone: Phone, name: str, count: int, busy: dict[str, dict[int, float]]) -> None:
    """The requests of one network: who comes to a state on a processor goes on from there."""
    cut: Partition = phone.cut(name)
    balance: dict[tuple[int, str | None], dict[int, float]] = defaultdict(dict)
    for done in cut.order[:-1]:
        places: list[str | None] = [place for at, place in balance if at == done] if done else [None]
        for after, subgraph in cut.next[done]:
            indices = phone.networks[name].indices(subgraph.ops)
            for processor in subgraph.latency_ms:
                work_ms = phone.run_ms(phone.networks[name], indices, processor)
                for place in places:
                    arc = program.column(count)
                    balance[done, place][arc] = 1.0
                    if after != cut.whole:
                        balance[after, processor][arc] = -1.0
                    busy[processor][arc] = work_ms + (0.0 if place in (None, processor) else MOVE_MS)
    for (done, _place), arcs in balance.items():
        program.exactly(0.0 if done else count, arcs)
