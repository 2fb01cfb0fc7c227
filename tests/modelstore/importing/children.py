"""A child of an import that does what a test wants of it."""

from contextlib import closing
from pathlib import Path

from appliance.modelstore.importing.child import ChildLimits, Stages
from appliance.modelstore.orders import Unpacked, UnpackOrder

LIMITS = ChildLimits(memory_bytes=2 << 30, cpu_s=20, wall_s=240.0, file_bytes=1 << 20, nice=3)
MISBEHAVING = "tests.modelstore.misbehaving"


async def misbehave(how: str, target: Path, limits: ChildLimits = LIMITS) -> Unpacked:
    with closing(Stages(MISBEHAVING)) as stages:
        return await stages.run(UnpackOrder(how, str(target)), limits=limits, scratch=target)
