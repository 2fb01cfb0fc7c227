"""What the routes work on: the running parts of one box, joined by the composition root."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.api.auth.browsers import Browsers
from appliance.api.auth.keyring import KeyRing
from appliance.api.auth.refused_sign_ins import RefusedSignIns
from appliance.api.auth.sign_in_links import SignInLinks
from appliance.api.deferred import DeferredRequests
from appliance.api.http.limits import InFlight
from appliance.api.http.turns import Turns
from appliance.api.regions.regions import Regions
from appliance.api.wall import Wall
from appliance.clock import Clock
from appliance.domain.hardware import ProcessorDescription, ProcessorStatus
from appliance.domain.health.memory import HealthMemory
from appliance.history.history import History
from appliance.resources.cores import Cores
from appliance.resources.memory import MemoryLimits
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.decisions.log import DecisionLog
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.pipelines.pipelines import Pipelines
from appliance.runtime.profiles.store import ProfileStore
from appliance.runtime.residency.loop import ResidencyLoop
from appliance.runtime.residency.shares import Shares
from appliance.runtime.sensors.sensors import Sensors
from appliance.runtime.serving.availability import Availability
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.media import MediaPool
from appliance.runtime.serving.predict import Predictor
from appliance.runtime.serving.sequences import Sequences
from appliance.runtime.sessions.sessions import Sessions
from appliance.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from appliance.api.followed_jobs import FollowedJobs
    from appliance.api.simulations import Simulations
    from appliance.modelstore.importing.deletion import ModelDeletion
    from appliance.modelstore.importing.importer import Importer
    from appliance.modelstore.store.backups import Backups
    from appliance.modelstore.store.housekeeping import Housekeeping
    from appliance.modelstore.store.restoring import Restoring
    from appliance.modelstore.store.store import Store
    from appliance.modelstore.store.uploads import Uploads
    from appliance.notifications.notifications import Notifications


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBox:
    """What answers requests of `/v2`. All parts live on the event loop; `is_ready` is true from the end of the start
    until the drain.
    """

    clock: Clock
    logger: Any
    catalogue: Catalogue
    availability: Availability
    engine: Engine
    profiles: ProfileStore
    memory: MemoryManager
    shares: Shares
    residency: ResidencyLoop
    sequences: Sequences
    telemetry: Telemetry
    decisions: DecisionLog
    history: History
    keyring: KeyRing
    browsers: Browsers
    in_flight: InFlight
    turns: Turns
    """Parts of a turn of the event loop, on which long answers draw."""
    regions: Regions | None
    """Shared memory; None: the box takes none."""
    media: MediaPool
    predictor: Predictor
    deferred: DeferredRequests
    sessions: Sessions
    """Of devices."""
    pipelines: Pipelines
    wall: Wall
    processors: tuple[ProcessorDescription, ...]
    processor_statuses: Callable[[], tuple[ProcessorStatus, ...]]
    """What each of them does now."""
    sensors: Sensors
    machine_memory: MemoryLimits
    """What the box may have of the machine's."""
    cores: Cores
    """The same."""
    state_dir: Path
    body_bytes_max: int
    frame_bytes_max: int
    """Of a frame of a session."""
    form_bytes_max: int
    started_ns: int
    """On the clock's monotonic scale."""
    is_ready: Callable[[], bool]
    confinement: Mapping[str, bool]
    """Of the processes that touch uploaded files."""
    is_emulated: bool = False
    """Whether runs take the time of a processor that is not there, which answers say."""
    metrics_open: bool = False
    """`/metrics` without a key."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings as shown to the operator."""
    described_settings: tuple[Mapping[str, Any], ...] = ()
    """Each with where its value came from."""

    @property
    def certificate_file(self) -> Path | None:
        """With which the box shows itself under TLS; None: it has none."""
        http = self.settings.get("http", {})
        if http.get("tls_cert"):
            return Path(http["tls_cert"])
        return self.state_dir / "tls" / "cert.pem" if http.get("tls_self_signed") else None

    @property
    def authority_file(self) -> Path | None:
        """The authority that the box has made itself, which stays when the certificate is renewed; None: others have
        signed for it.
        """
        http = self.settings.get("http", {})
        is_own = bool(http.get("tls_self_signed")) and not http.get("tls_cert")
        return self.state_dir / "tls" / "authority.pem" if is_own else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBox(ServingBox):
    """With what manages it; it comes a little later."""

    store: "Store"
    uploads: "Uploads"
    importer: "Importer"
    followed_jobs: "FollowedJobs"
    deletion: "ModelDeletion"
    refused_sign_ins: RefusedSignIns
    sign_in_links: SignInLinks
    housekeeping: "Housekeeping"
    backups: "Backups"
    restoring: "Restoring"
    simulations: "Simulations"
    health: HealthMemory
    notifications: "Notifications"
