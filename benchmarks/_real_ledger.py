"""Builds of real networks come, sleep, wake and go at random, and after each change what the ledger counts is laid
beside what the kernel says that this process takes (Pss).
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from appliance.clock import NS_PER_MS, SystemClock
from appliance.confinement.limits import ChildLimits
from appliance.demo.zoo import toys
from appliance.domain.hardware import MeasureCase, PreparedForm
from appliance.domain.states import ResidencyState
from appliance.runtime.memory.loader import Loader
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.measuring.measure import ChildMeasure
from tests.fakes.memory import without_applications
from tests.fakes.own_memory import own_bytes
from tests.fakes.sinks import Decisions

CLOCK = SystemClock()
MEGABYTES = (6.0, 12.0, 20.0, 30.0, 9.0)
BUDGET_SHARE = 0.6
"""Of what all networks take awake."""
WARM_UP = 60
"""Changes before the process is first looked at."""
CHANGES = ("use", "use", "use", "release", "release", "unload")


@dataclass(frozen=True)
class Network:
    """A prepared form with its figures, and what it is asked."""

    form: PreparedForm
    inputs: Mapping[str, np.ndarray]


class Nobody:
    """Port `EventSink`: what it kept would count."""

    def emit(self, event: str, **facts: object) -> None:
        pass


class Networks:
    """Port `VariantSource` over some networks."""

    def __init__(self, networks: Mapping[str, Network]) -> None:
        self.all = networks

    async def open_build(self, build_id: str) -> PreparedForm:
        return self.all[build_id].form


async def networks(folder: Path, processor: OnnxProcessor, *, large: bool) -> dict[str, Network]:
    """Prepared and measured by children, as an import does it."""
    scratch = folder / "scratch"
    scratch.mkdir()
    measure = ChildMeasure([processor.describe()], ChildLimits(), scratch)
    image = {"image": np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)}
    sources = [
        (toys.conv_net(folder / f"net{seed}.onnx", size, seed=seed), image) for seed, size in enumerate(MEGABYTES)
    ]
    if large:
        picture = {"gpu_0/data_0": np.random.default_rng(1).random((1, 3, 224, 224), np.float32)}
        sources += [(make(folder / f"{make.__name__}.onnx"), picture) for make in (toys.resnet50, toys.shufflenet)]
    made: dict[str, Network] = {}
    for source, inputs in sources:
        target = folder / source.stem
        target.mkdir()
        form = await measure.prepare(str(source), str(target), "cpu")
        assert form is not None
        profile = await measure.profile(form, "cpu", [MeasureCase(1, inputs)])
        made[source.stem] = Network(
            PreparedForm(
                source.stem,
                form.path,
                form.size_bytes,
                optimised=True,
                resident_bytes=profile.resident_bytes,
                peak_bytes=profile.peak_bytes,
                asleep_bytes=profile.asleep_bytes,
            ),
            inputs,
        )
    return made


class Story:
    """A memory manager over a real processor."""

    def __init__(self, processor: OnnxProcessor, known: Mapping[str, Network], chance: Random) -> None:
        self._chance = chance
        self._processor = processor
        self._known = known
        budget = int(BUDGET_SHARE * sum(network.form.resident_bytes or 0 for network in known.values()))
        self.memory = MemoryManager(
            clock=CLOCK,
            loader=Loader(Networks(known), processor),
            arbiter=without_applications(budget, Decisions()),
            budget_bytes=budget,
            wait_ms_max=10_000,
            events=Nobody(),
            asleep_share=0.25,
            asleep_of=lambda build_id: known[build_id].form.asleep_bytes,
        )

    async def use(self, name: str) -> None:
        """One request."""
        network = self._known[name]
        build = await self.memory.pin(name, network.form.resident_bytes or 0, network.form.peak_bytes or 0, None)
        await self._processor.run(build.handle, network.inputs, None)
        self.memory.unpin(build)

    async def change(self) -> None:
        """One at random, to its end."""
        name = self._chance.choice(sorted(self._known))
        match self._chance.choice(CHANGES):
            case "use":
                await self.use(name)
            case "release":
                self.memory.release(name)
            case _:
                await self.memory.unload(name)
        builds = [self.memory.build(name) for name in self._known]
        while any(build is not None and build.state is ResidencyState.UNLOADING for build in builds):
            await CLOCK.sleep_until_ns(CLOCK.now_ns() + NS_PER_MS)


async def tell(changes: int, seed: int, *, large: bool) -> dict[str, list[int]]:
    """Return for each change the bytes of the ledger, and those of the process above what it took with nothing loaded.
    `large`: ResNet-50 and ShuffleNet beside the small networks.
    """
    with tempfile.TemporaryDirectory() as name:
        processor = OnnxProcessor("cpu", 1, 1, 1)
        known = await networks(Path(name), processor, large=large)
        story = Story(processor, known, Random(seed))
        # What the runtime allocates once per process, and the holes that a heap keeps among what lives in it (0.3 MB,
        # reached within some dozen changes and no more after a thousand), are no part of a build.
        for build_id in known:
            await story.use(build_id)
        for _ in range(WARM_UP):
            await story.change()
        for build_id in known:
            await story.memory.unload(build_id)
        wakes_before = story.memory.wakes
        found: dict[str, list[int]] = {"ledger": [], "process": [], "wakes": [], "budget": [story.memory.budget_bytes]}
        own_bytes(Path(name))
        base = own_bytes(Path(name))
        for _ in range(changes):
            await story.change()
            found["ledger"].append(story.memory.used_bytes)
            found["process"].append(own_bytes(Path(name)) - base)
        found["wakes"].append(story.memory.wakes - wakes_before)
        await story.memory.close()
        processor.close()
        return found


def off(found: Mapping[str, list[int]]) -> list[float]:
    """By how much the ledger was off after each change, as a share of what it counted, or of a quarter of the
    budget where it counted less.
    """
    least = found["budget"][0] / 4
    pairs = zip(found["ledger"], found["process"], strict=True)
    return [abs(ledger - process) / max(ledger, least) for ledger, process in pairs]
