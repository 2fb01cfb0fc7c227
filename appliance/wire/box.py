"""What the box says of itself."""

import datetime
from typing import Any, Literal

from pydantic import Field

from appliance.domain.events import Severity
from appliance.wire.shape import Shape


class SystemShape(Shape):
    """The box at a glance."""

    name: str = "edge-appliance"
    version: str = Field(examples=["0.1.0"])
    ready: bool
    """Whether it answers inference requests."""
    uptime_s: float
    now: datetime.datetime
    python: str
    python_build: str = Field("", examples=["PGO, LTO"])
    """How the interpreter was optimised when it was built; `plain` costs 10-15 % of the requests of a tiny model."""
    machine: str = Field(examples=["x86_64"])
    cores: int
    """Which the box may have at work at once."""
    cores_bound: str = Field("", examples=["cpu.max: 1.5"])
    """What allows no more: the file of a cgroup, of a quota with its cores, or `affinity`; empty: the machine has no
    more.
    """
    memory_total_bytes: int
    """Which the box may have, page cache apart."""
    memory_available_bytes: int
    memory_bound: str = Field("", examples=["memory.max"])
    """The file of a cgroup that allows no more memory; empty: the machine has no more."""
    process_bytes: int
    """Proportional set size of the service."""
    disk_free_bytes: int
    """Free in the state folder."""
    confinement: dict[str, bool] = Field(examples=[{"files": True, "calls": True, "own_user": False}])
    """What holds back the processes that touch uploaded files, true where this machine has it: `files`: they see their
    own only (Landlock); `calls`: system calls are filtered; `own_user`: each guard has a user of its own.
    """
    policies: dict[str, str]
    settings: dict[str, dict[str, int | float | None]]
    """Those that decide how requests are served, by section: memory, pipelines, queues, residency and selection."""
    certificate_sha256: str | None = Field(None, examples=["9A:3F:...:07"])
    """Fingerprint of the certificate that the box shows itself with; null: it serves without TLS."""
    authority_sha256: str | None = Field(None, examples=["C4:11:...:5E"])
    """Fingerprint of the authority that the box has made itself, which stays when its certificate is renewed: by this a
    device knows the box again. Null: others have signed its certificate, or it serves without TLS.
    """
    tenant: str = Field("", examples=["harbour"])
    """Tenant that the key acts for; `models` and `applications` count what this tenant sees."""
    models: int
    applications: int
    models_of_all: int | None = Field(None, examples=[5])
    """Of all tenants; null with a tenant's key."""
    applications_of_all: int | None = Field(None, examples=[7])
    """Of all tenants; null with a tenant's key."""
    engine: dict[str, Any]
    """Requests that wait and run."""


class SettingShape(Shape):
    """A setting of the box."""

    name: str = Field(examples=["http.port"])
    value: Any = Field(examples=[8443])
    default: Any = Field(examples=[8080])
    source: Literal["option", "environment", "file", "default"]
    """`option`: the command line; `environment`: a variable; `file`: the TOML file; `default`: nobody said anything."""
    description: str


class ProcessorShape(Shape):
    """A compute device as it is scheduled."""

    name: str = Field(examples=["cpu"])
    kind: str = Field(examples=["cpu"])
    state: Literal["serving", "lost", "throttled", "unfit", "not-run"] = "serving"
    """`serving` takes runs. `not-run`: its probe, a tiny network, has not ended on this machine yet; `unfit`: that
    failed, or ran elsewhere. `lost`: it no longer answers, and is probed until it is back. `throttled` takes runs, too,
    but is too hot, or short of power, for its full speed.
    """
    reason: str | None = None
    """Why it takes no runs, or is throttled; else empty. This and all below are shown to an operator only."""
    workers: int | None = None
    threads_per_run: int | None = None
    memory_domain: str | None = None
    fingerprint: str | None = None
    """Library versions and device that prepared forms are made for."""
    cores: tuple[int, ...] | None = None
    """Numbers of those that its runs are pinned to; empty: they run where the system puts them."""
    runs: int | None = None
    """Since the start of the box."""
    busy_ms: float | None = None
    """What these runs have taken."""
    mean_batch: float | None = None
    """Rows of a run of a whole network, in the mean since the start of the box; empty: there was none."""
    memory_used_bytes: int | None = None
    """What builds take of the memory of a device that has its own (`memory_domain` is not `host`)."""
    memory_budget_bytes: int | None = None
    """What they may take there."""
    watts: float | None = None
    """What one of its workers takes while it runs: by what sensors say now, else as the settings declare it; empty:
    neither tells.
    """
    price_per_hour: float | None = None
    """Of one of its workers, as set."""
    takes_guarded: bool | None = None
    """Whether builds that need a guard may run there; else they run on the first kind."""


class ReadingShape(Shape):
    """One sensor."""

    source: Literal["thermal", "hwmon", "cpufreq", "devfreq", "rapl", "nvml", "jtop"]
    name: str = Field(examples=["x86_pkg_temp"])
    """As the source calls it."""
    device: str = Field(examples=["cpu"])
    """`cpu`, `gpu` or `dla` where it is that device's; empty: the machine's, or not known."""
    quantity: Literal["celsius", "watts", "megahertz", "rpm", "percent", "bytes"]
    value: float | None = Field(examples=[51.0])
    """null = unknown: it does not answer, or says what cannot be."""
    limit: float | None
    """The highest that it may become, where that is known."""


class ThrottledShape(Shape):
    """A device that computes more slowly than it could."""

    device: str = Field(examples=["gpu"])
    reason: str = Field(examples=["it is too hot"])


class SensorsShape(Shape):
    """The machine's sensors as they were read last."""

    at: datetime.datetime | None
    """null = nothing was read yet."""
    interval_s: float
    """Between two rounds; 0 = they are not read."""
    readings: list[ReadingShape]
    throttled: list[ThrottledShape]


class EventShape(Shape):
    """Something that changed."""

    id: int
    at: str
    event: str = Field(examples=["variant loaded"])
    severity: Severity = Severity.INFO
    """`info`, `warning` or `error`: whether it asks for somebody's attention."""
    tenant: str | None
    facts: dict[str, Any]


class BuildShape(Shape):
    """A build in memory: a variant prepared for one kind of processor."""

    build: str = Field(examples=["9f8a3c5be01d4f7a2c6b8e90@cpu"])
    variant: str = Field("", examples=["int8"])
    """Its name in the model of the first of `applications`; empty where no application uses it any more."""
    state: str = Field(examples=["resident"])
    """`loading`, `resident`, `draining`, `unloading`, `asleep` (its session without its weights, in memory again in
    milliseconds) or `failed`.
    """
    bytes: int
    """What it takes now: its peak while it loads."""
    resident_bytes: int
    peak_bytes: int
    pins: int
    """Requests that wait for it or use it."""
    idle_ms: float | None
    loads: int
    load_ms: float
    """Duration of the last load."""
    wakes: int = 0
    """Times that it came into memory by waking."""
    wake_ms: float = 0.0
    """Duration of the last wake."""
    applications: list[str] = Field(examples=[["harbour/door"]])


class ExpectationShape(Shape):
    """Where an application stands in the residency loop: inside its window (maximalist) or outside (minimalist)."""

    application: str
    set: str
    resident: str | None
    variants: list[str]
    """Those worth keeping in memory, most accurate first."""
    forecaster: str
    expected_in_ms: float | None
    """Negative while the window of a passed prediction is still open; null when nothing is predicted."""
    reloads_per_min: int
    """Loads of its variants in the last minute, those for requests too."""
    thrashes: int
    """Times that these were too many, so that it was left alone until it calmed down."""


class ResidencyShape(Shape):
    """The residency loop: Δ and H as they are now, and each application's place."""

    delta_ms: float
    history_window_ms: float
    transitions: int
    applications: list[ExpectationShape]


class HoldingShape(Shape):
    """A tenant's part of the memory."""

    tenant: str = Field(examples=["harbour"])
    held_bytes: int
    """What its models take now, those being loaded with their peak."""
    guarantee_bytes: int
    """What of it is not taken for other tenants."""
    ceiling_bytes: int | None
    """The most that they take; null = no limit."""


class BesideShape(Shape):
    """Memory of one sort of processes that hold no builds."""

    of: str = Field(examples=["guards"])
    bytes: int


class MemoryShape(Shape):
    """The memory domain and what is in it."""

    budget_bytes: int
    used_bytes: int
    overhead_bytes: int = 0
    """What guards, what these are forked of, and processes that plan take by themselves; it is in `used_bytes`, and
    models may take the budget less it.
    """
    beside: list[BesideShape] = Field([])
    """`overhead_bytes` by sort of process, the largest first: with all builds it adds up to `used_bytes`."""
    runs_bytes: int = 0
    """Memory that runs under way need beside their builds (activations). They take free memory of the budget first,
    then of `spare_bytes`.
    """
    spare_bytes: int = 0
    """Memory that the machine has for runs beside the whole budget."""
    asleep_bytes: int = 0
    """What sleeping builds keep; it is in `used_bytes`."""
    loads: int
    load_failures: int
    loads_skipped: int
    """Loads ahead of a request that found no room."""
    wakes: int = 0
    """Builds that were asleep and came into memory again."""
    evictions: int
    replacements: int
    """Evictions that left a smaller variant in the place of the one that went."""
    robustness: float | None = Field(None, examples=[0.86])
    """Mean of `served.robustness` over the applications that had requests (Edge-MultiAI, equation 4); null: none had.
    With a tenant's key over the tenant's own."""
    fairness: float | None = Field(None, examples=[0.97])
    """Jain's index of the warm shares of the same applications: 1 where all are alike; null where no request was
    warm."""
    builds: list[BuildShape]
    tenants: list[HoldingShape]
    """By name; with a tenant's key, its own."""
    residency: ResidencyShape
