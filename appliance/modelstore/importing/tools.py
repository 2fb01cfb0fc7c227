"""What the parts of an import share: the values of settings they need, and the things they work with."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from appliance.confinement.limits import ChildLimits
from appliance.domain.hardware import ProcessorDescription
from appliance.modelstore.importing.child import Stages
from appliance.modelstore.importing.prepared import Builds
from appliance.modelstore.ports import Measure
from appliance.modelstore.store.store import Store


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The values of `settings.imports` that an import needs."""

    jobs_parallel_max: int = 1
    limits: ChildLimits = field(default_factory=ChildLimits)
    missing_confinement: tuple[str, ...] = ()
    """What children would lack and must have: no import is accepted."""
    inspect_wall_s: float = 120.0
    accuracy_floor: float = 0.5
    ladder_max: int = 3
    batch_max: int = 8
    eval_samples_max: int = 64
    calibration_samples_max: int = 32
    part_ops_min: int = 7
    parts_max: int = 16
    upkeep_idle_s: float = 0.0
    upkeep_wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Tools:
    """What every import works with."""

    store: Store
    builds: Builds
    measure: Measure
    processors: Sequence[ProcessorDescription]
    """Forms are prepared for each kind; the first one profiles."""
    options: ImportOptions
    stages: Stages = field(default_factory=Stages)
