"""What is left to gain with the true rates, after a search that rounded them up."""

from collections.abc import Sequence

from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.options import Options

PASSES_MAX = 4


def polished(options: Options, mapped: Sequence[Mapped], workers: int) -> list[Mapped]:
    """`mapped` with each worker's best network, unmapped clients where they fit, and clients on more accurate workers
    that have room.

    Greedy; O(passes · clients · workers · options). The count never falls, nor, for an equal count, Σ accuracy·rate.
    Ties: the lower rate, then the name.
    """
    index = {client.name: i for i, client in enumerate(options.clients)}
    members = [[index[client.name] for client in m.clients] for m in mapped]
    members += [[] for _ in range(workers - len(members))]
    order = sorted(range(len(options.clients)), key=lambda i: (options.rates[i], options.clients[i].name))
    for _ in range(PASSES_MAX):
        if not any([_moved(options, members, client) for client in order]):
            break
    return [_as_mapped(options, m) for m in members if m]


def _moved(options: Options, members: list[list[int]], client: int) -> bool:
    """Put the client where the workers are worth the most together; whether it moved."""
    source = next((k for k, m in enumerate(members) if client in m), None)
    without = [i for i in members[source] if i != client] if source is not None else []
    # An unmapped client is taken at any loss of accuracy: the most clients come first.
    least = _worth(options, members[source]) - _worth(options, without) + 1e-9 if source is not None else -float("inf")
    target = source
    for k, m in enumerate(members):
        if k == source or _option(options, [*m, client]) is None:
            continue
        gain = _worth(options, [*m, client]) - _worth(options, m)
        if gain > least:
            least, target = gain, k
    if target is None or target == source:
        return False
    if source is not None:
        members[source] = without
    members[target] = sorted([*members[target], client])
    return True


def _option(options: Options, members: Sequence[int]) -> int | None:
    """The most accurate option that serves these clients together."""
    fits = options.tolerated[members].all(axis=0) & (options.capacity >= options.rates[members].sum())
    return int(fits.argmax()) if fits.any() else None


def _worth(options: Options, members: Sequence[int]) -> float:
    option = _option(options, members) if members else None
    return float(options.accuracy[option] * options.rates[members].sum()) if option is not None else 0.0


def _as_mapped(options: Options, members: Sequence[int]) -> Mapped:
    option = _option(options, members)
    assert option is not None  # a worker only takes whom it can serve
    return Mapped(options.networks[option], options.batches[option], tuple(options.clients[i] for i in members))
