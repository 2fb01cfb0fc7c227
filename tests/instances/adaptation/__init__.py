"""Problems of the adaptation family: a YOLO-like zoo as a file, clients drawn as in the paper's §VI-F (JF-30)."""

import json
import random
from dataclasses import replace
from pathlib import Path

from appliance.policies.adaptation.base import AdaptationInput, Client, Network

RATES = (10.0, 15.0, 25.0)
SLOS_MS = (75.0, 100.0, 150.0)
BANDWIDTH_BPS = (7.5e6, 50e6)


def yolo() -> tuple[Network, ...]:
    """17 networks of 128 … 640 px, batches 1 … 12."""
    document = json.loads((Path(__file__).parent / "yolo.json").read_text())
    return tuple(
        Network(m["name"], m["accuracy"], m["input_bytes"], {int(b): ms for b, ms in m["latency_ms"].items()})
        for m in document["models"]
    )


def quick() -> tuple[Network, ...]:
    """The same zoo on an accelerator with little fixed cost: latency 4 + b·(0.8 + 40 Mpx) ms, so that capacity falls
    fast with size.
    """
    return tuple(
        replace(n, latency_ms={b: 4.0 + (ms - 20.0 - 2.0 * b) * 40 / 53 + 0.8 * b for b, ms in n.latency_ms.items()})
        for n in yolo()
    )


ZOOS = {"yolo": yolo, "quick": quick}


def drawn(
    seed: int,
    workers: int,
    clients_each: int,
    *,
    zoo: str = "yolo",
    rates: tuple[float, ...] = RATES,
    slos_ms: tuple[float, ...] = SLOS_MS,
    bandwidth_bps: tuple[float, float] = BANDWIDTH_BPS,
) -> AdaptationInput:
    """`workers` × `clients_each` clients: rate and SLO from the lists, bandwidth uniform between the two."""
    dice = random.Random(f"{seed}/{workers}/{clients_each}")
    clients = tuple(
        Client(f"c{i:03}", dice.choice(rates), dice.choice(slos_ms), dice.uniform(*bandwidth_bps))
        for i in range(workers * clients_each)
    )
    return AdaptationInput(ZOOS[zoo](), workers, clients, seed=seed)


def overloaded(seed: int, workers: int, clients_each: int, *, zoo: str = "yolo") -> AdaptationInput:
    """More than the workers can carry: short SLOs, fast clients, slow links, so that who is mapped is the question."""
    rates = (15.0, 25.0, 30.0) if zoo == "yolo" else (25.0, 50.0, 60.0)
    return drawn(
        seed, workers, clients_each, zoo=zoo, rates=rates, slos_ms=(75.0, 75.0, 100.0), bandwidth_bps=(3e6, 20e6)
    )
