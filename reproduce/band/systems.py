"""The systems that Band is compared with (§6.2), on the same phone, with the same workers and the same scheduler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from appliance.policies.dispatch import DISPATCH_POLICIES
from reproduce.band.beliefs import AS_BAND, USUAL, Belief, Knowledge, Weather
from reproduce.band.device import Device
from reproduce.band.phone import CPU_ONLY, MOVE_MS, PROCESSORS, Network, Phone, Stretch

System = Literal["fixed", "max partition", "no subgraphs", "band"]
SYSTEMS: tuple[System, ...] = ("fixed", "max partition", "no subgraphs", "band")


@dataclass(frozen=True)
class Setup:
    """`homes`: the processors of each network under the fixed systems. `processors`: those that there are."""

    phone: Phone
    homes: Mapping[str, frozenset[str]]
    processors: Sequence[str] = PROCESSORS
    policy: str = "affinity"
    weather: Weather = USUAL


def device(setup: Setup, system: System, seed: int, knowledge: Knowledge = AS_BAND) -> tuple[Device, Belief]:
    """A system on the phone. A fixed one has one instance of each network, and serves first come, first served."""
    phone, policy, is_fixed = setup.phone, setup.policy, system in ("fixed", "max partition")
    if is_fixed:
        networks = {name: bound(one, setup.homes[name], system) for name, one in phone.networks.items()}
        phone, policy = replace(phone, networks=networks), "fifo"
    belief = Belief(phone, knowledge, seed, whole=system == "no subgraphs", weather=setup.weather)
    made = Device(setup.processors, DISPATCH_POLICIES[policy](), belief, transfer_ms=MOVE_MS, is_serial=is_fixed)
    return made, belief


def bound(network: Network, home: frozenset[str], system: System) -> Network:
    """The network that can only run where the system puts it (Figure 9): what `home` can run runs there, all else on
    the CPU; as `fixed` (TensorFlow Lite as it is) all after the first stretch that `home` lacks, too.
    """
    stretches: list[Stretch] = []
    for one in network.stretches:
        is_past = system == "fixed" and stretches and stretches[-1].processors != home
        stays = home <= one.processors and not is_past
        stretches.append(replace(one, processors=home if stays else CPU_ONLY))
    return replace(network, stretches=tuple(stretches))
