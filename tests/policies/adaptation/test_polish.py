"""What polishing moves, by hand."""

import numpy as np
import pytest

from appliance.policies.adaptation.base import Client, Network
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.options import Options
from appliance.policies.adaptation.polish import polished


def chain(movers: int) -> tuple[Options, list[Mapped]]:
    """Workers 0, 1, 2 ... of falling accuracy, each with a client that only it can serve and room for one more; on
    every one but the first a mover, which can also be on the worker before. So the first mover can go up at once, and
    each other one when the one before it has. They are named such that those far behind are looked at first.
    """
    workers = movers + 1
    residents = [Client(f"r{at}", 10.0, 100.0, 1e9) for at in range(workers)]
    moving = [Client(f"m{movers - at}", 10.0, 100.0, 1e9) for at in range(1, workers)]
    clients = sorted((*residents, *moving), key=lambda one: one.name)
    networks = tuple(Network(f"n{at}", 0.9 - 0.1 * at, 0.0, {1: 50.0}) for at in range(workers))
    tolerated = np.zeros((len(clients), workers), dtype=np.bool_)
    for at in range(workers):
        tolerated[clients.index(residents[at]), at] = True
        if at:
            tolerated[clients.index(moving[at - 1]), at - 1 : at + 1] = True
    options = Options(
        tuple(clients),
        networks,
        (1,) * workers,
        np.array([network.accuracy for network in networks]),
        np.full(workers, 20.0),
        np.full(len(clients), 10.0),
        tolerated,
    )
    first = Mapped(networks[0], 1, (residents[0],))
    return options, [first, *(Mapped(networks[at], 1, (residents[at], moving[at - 1])) for at in range(1, workers))]


@pytest.mark.parametrize(("movers", "moved"), [(1, 1), (3, 3), (4, 4), (5, 4)])
def test_polish_of_a_chain_moves_one_client_a_pass_and_stops_after_four(movers: int, moved: int) -> None:
    """Each pass lets one mover up, whose place the next pass gives to the one behind it."""
    options, mapped = chain(movers)
    found = {one.network.name: {client.name for client in one.clients} for one in polished(options, mapped, movers + 1)}
    expected = {f"n{at}": {f"r{at}"} for at in range(movers + 1)}
    for at in range(1, movers + 1):
        expected[f"n{at - 1 if at <= moved else at}"].add(f"m{movers - at}")
    assert found == expected
