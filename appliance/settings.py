"""One frozen tree of settings, read once by the roots (`app`, `cli`).

Sources, strongest first: command-line options, environment (`APPLIANCE_HTTP__PORT=9000`), the TOML file named by
`APPLIANCE_CONFIG`, defaults.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic_core import to_jsonable_python
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

MIB = 2**20
GIB = 2**30


class Section(BaseModel):
    """Base of the branches: frozen, and a misspelt key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class HttpSettings(Section):
    host: str = "127.0.0.1"
    """Address to listen on; loopback until an operator opens it."""
    port: int = Field(8080, ge=0, le=65535)
    """TCP port; 0 takes a free one (printed at start)."""
    unix_socket: Path | None = None
    """A file at which the box listens too, as a Unix socket and without TLS, for clients on the box itself."""
    unix_socket_mode: str = Field("0600", pattern="^(0600|0660)$")
    """Who may connect there: `0600`, the box's own user; `0660`, its group too. A key is needed all the same."""
    shared_memory: bool = False
    """Whether clients on the box itself may pass tensors in shared memory (`/v2/systemsharedmemory`)."""
    shared_memory_regions_max: int = Field(32, ge=1, le=1000)
    """Shared memory regions that one tenant may have registered; all tenants together ten times as many."""
    shared_memory_bytes_max: int = Field(256 * MIB, ge=1024)
    """Bytes of one tenant's shared memory regions together."""
    body_bytes_max: int = Field(64 * MIB, ge=1024)
    """Largest body of an inference or predict request; bodies that wait count against memory."""
    frame_bytes_max: int = Field(4 * MIB, ge=1024)
    """Largest frame of a session; its frames that are coming, or wait for their answers, take at most twice as much."""
    form_bytes_max: int = Field(64 * MIB, ge=1024)
    """Largest model that `POST /v1/models` takes at once; larger ones go by `/v1/uploads`."""
    upload_bytes_max: int = Field(8 * GIB, ge=1024)
    """Largest upload by `/v1/uploads`."""
    uploads_per_tenant_max: int = Field(64, ge=1)
    """Uploads by `/v1/uploads` that one tenant may have under way; all tenants together ten times as many."""
    inflight_bytes_max: int = Field(256 * MIB, ge=1024)
    """Sum of the bodies of requests that are being handled, and of what is made of them: arrays, texts. One tenant's at
    most seven times what is free.
    """
    results_bytes_max: int = Field(64 * MIB, ge=1024)
    """Sum of the results that wait to be fetched (`wait=false`), each for a minute; one tenant's at most seven times
    what is free. One that finds no room is lost.
    """
    unread_bytes_max: int = Field(256 * MIB, ge=1024)
    """Sum of what callers have yet to read of their answers, beside the one that was written last; beyond it
    connections are closed: of the tenant that has most the one that has not kept up for longest.
    """
    connections_max: int = Field(1000, ge=1)
    """Open connections at once. For one more, the oldest without a good key gives way, of the address that has most of
    them; then an idle one of the tenant that has most; else it gets 503.
    """
    connections_reserved: int = Field(64, ge=0)
    """Connections that one tenant alone cannot have, and that give way last while no key was shown on them."""
    head_s: float = Field(10.0, gt=0)
    """A connection on which no complete head of a request has come for so long is closed."""
    head_bytes_max: int = Field(32 * 1024, ge=1024, le=MIB)
    """Largest head of a request: its first line and headers."""
    body_s: float = Field(10.0, gt=0)
    """A connection is closed when a body has come, or an answer was taken, more slowly than `body_bytes_per_s_min` for
    so long.
    """
    body_bytes_per_s_min: float = Field(1000.0, gt=0)
    """Slowest body or answer that is waited for."""
    keep_alive_s: float = Field(30.0, gt=0)
    """How long an idle connection stays open."""
    drain_s: float = Field(20.0, ge=0)
    """How long a SIGTERM waits for running requests."""
    tls_cert: Path | None = None
    """PEM certificate; with `tls_key` the box speaks HTTPS."""
    tls_key: Path | None = None
    """PEM private key of `tls_cert`."""
    tls_self_signed: bool = False
    """Make and use a self-signed certificate in the state folder."""


class MemorySettings(Section):
    budget_bytes: int | None = Field(None, ge=MIB)
    """Bytes that loaded builds may occupy; empty: `budget_share` of what is available at start."""
    budget_share: float = Field(0.5, gt=0, le=0.95)
    """Share of the available memory, of the machine or below the limit of its container, taken when `budget_bytes` is
    empty; the rest is activations, bodies and other programs.
    """
    reserve_bytes: int | None = Field(None, ge=0)
    """Memory of the machine, and below the limit of its container, that stays free: when others take so much that less
    would be left, the budget shrinks, and grows back after. Empty: 256 MiB, or a quarter of what is available at start
    where that is less.
    """
    loads_parallel_max: int = Field(2, ge=1, le=16)
    """Loads at once; each reserves its measured peak."""
    asleep_share: float = Field(0.25, ge=0, le=0.9)
    """Share of the budget that sleeping builds may take together: sessions whose weights were given back, in memory
    again in milliseconds. When it is full, the tenant that has most of it by its weight loses the one asked longest
    ago. 0 = nothing sleeps.
    """
    wait_ms_max: float = Field(30_000.0, gt=0)
    """Longest wait of a request without a deadline for pinned memory to become free."""


class ProcessorSettings(Section):
    kind: str = "cpu"
    """`cpu`, `openvino`, `xnnpack`, `cuda`, `tensorrt`, `dla` or `emulated`."""
    name: str | None = None
    """Name in metrics, profiles and plans; empty: the kind."""
    workers: int | None = Field(None, ge=1, le=64)
    """Runs at once; empty: the number of `cores`, or else of usable ones, divided by `threads_per_run`; of a quota of
    the container the whole cores.
    """
    threads_per_run: int = Field(1, ge=1, le=64)
    """Threads of one run; workers × threads should not exceed the cores (two 1-thread runs beat one 2-thread run in
    throughput).
    """
    cores: Literal["auto"] | tuple[int, ...] = Field("auto", max_length=1024)
    """Numbers of the cores that the threads of its runs are pinned to; empty: where the system puts them. `auto`: a
    `cpu` that is the only one, with no `workers` set, becomes a processor for each sort of core where the machine has
    big and little ones, named `cpu-big`, `cpu-little`; else as empty. `openvino` places its threads itself.
    """

    memory_bytes: int | None = Field(None, ge=MIB)
    """Bytes that builds may take of the memory of a device that has its own (`cuda`, `tensorrt` on a card); empty: what
    the device has, without half a gigabyte.
    """
    watts: float | None = Field(None, ge=0, le=10_000)
    """Watts that one worker takes while it runs, where no sensor tells: what pipelines' frames cost in joules."""
    price_per_hour: float | None = Field(None, ge=0, le=1e9)
    """What an hour of one worker costs, in whatever unit; empty: pipelines' frames have no price."""


class QueueSettings(Section):
    len_max: int = Field(1024, ge=1)
    """Requests of one tenant to one application that may wait; more get 429. Also the line of pictures and sounds to
    decode.
    """
    total_max: int = Field(4096, ge=1)
    """Requests of all applications that may wait; one tenant's at most seven times what is free."""
    wait_ms_max: float = Field(10_000.0, gt=0)
    """A request that would wait longer for a worker, by what waits before it, gets 429 at once."""
    timeout_ms: float = Field(30_000.0, gt=0)
    """Deadline of a request that states none and whose application has no SLO."""
    media_threads: int | None = Field(None, ge=1, le=64)
    """Threads that decode pictures and sound and read outputs; empty: as many as workers.

    More than the cores only adds waiting.
    """
    quick_us_max: float = Field(250.0, ge=0)
    """A model whose measured median is below this runs on the event loop: the hop to a thread would cost more than
    the run. 0 = never.
    """
    inline_ms_max: float = Field(5.0, ge=0, le=50)
    """A run that is expected to take at most this, of a model that is known to do no harm, runs on the event loop where
    nothing else waits or runs and no other connection has asked for 50 ms. 0 = never.
    """
    sequences_max: int = Field(1024, ge=1)
    """States of stateful models kept at once; one tenant's at most seven times what is free."""
    sequence_idle_s: float = Field(60.0, gt=0)
    """A state that was not used for this long is dropped."""


class GuardSettings(Section):
    isolation: str = Field("auto", pattern="^(auto|process|none)$")
    """Which builds run in a process of their owner's: `auto` = those that the import has not shown to be harmless,
    `process` = all, `none` = none: whoever may upload a model may stop the box.
    """
    run_s_max: float = Field(30.0, gt=0)
    """A run in a guard is stopped after so long."""
    run_bytes_max: int = Field(GIB, ge=64 * MIB)
    """Memory that runs in a guard may take beside its builds; a run that asks for more fails."""
    processes_max: int = Field(8, ge=1, le=64)
    """Guards at once; for one more, the one unused longest ends."""
    idle_s: float = Field(60.0, gt=0)
    """A guard that has held no build for so long ends."""


class ImportSettings(Section):
    confine: str = Field("auto", pattern="^(auto|required)$")
    """`required`: no import is accepted, and nothing is measured again, where its processes could not be confined
    (Landlock, filtered system calls), and each of them ends when it is not; `auto`: they are confined as far as the
    machine can, which the log and `/v1/system` say.
    """
    jobs_parallel_max: int = Field(1, ge=1, le=8)
    """Import jobs at once; the rest queue. While models are measured and made into further variants, as many small ones
    begin beside them.
    """
    child_memory_bytes: int = Field(6 * GIB, ge=256 * MIB)
    """Address-space limit of a child that inspects or converts a hostile model."""
    child_cpu_s: int = Field(900, ge=10)
    """CPU-time limit of one child."""
    child_wall_s: int = Field(1200, ge=10)
    """Wall-time limit of one child."""
    inspect_wall_s: int = Field(120, ge=5)
    """Wall-time limit of the first look at a file."""
    file_bytes_max: int = Field(16 * GIB, ge=MIB)
    """Largest file a child may write."""
    accuracy_floor: float = Field(0.5, ge=0, le=1)
    """A made variant whose accuracy (or fidelity) is below this is excluded."""
    ladder_max: int = Field(3, ge=1, le=8)
    """Input sizes made of a model with free height and width."""
    batch_max: int = Field(8, ge=1, le=128)
    """Largest batch that a model with a free batch axis is measured with, from 1 on by doubling, while its runs are
    cheap and fit into memory; larger ones make imports take longer.
    """
    nice: int = Field(10, ge=0, le=19)
    """Politeness of the children towards serving."""
    jobs_kept_days: int = Field(30, ge=1)
    """Days after which a finished job is forgotten."""
    eval_samples_max: int = Field(64, ge=1)
    """Samples per accuracy measurement."""
    calibration_samples_max: int = Field(32, ge=1)
    """Inputs used to calibrate static quantisation."""
    parts_max: int = Field(16, ge=0, le=64)
    """Parts that a model is cut into at most, where some kind of processor does not run all of it. 1: none is cut;
    0: as many as the kinds' operators make.
    """
    part_ops_min: int = Field(7, ge=1, le=1000)
    """A part of fewer operators that has next to no work joins its neighbour, where that takes nothing from the other's
    kinds of processors; 1: none does.
    """
    upkeep_idle_s: float = Field(5.0, ge=0, le=3600)
    """What is known already is measured anew (after an update of libraries, for example) when there has been no request
    for so long, and rests as soon as one comes; 0: at any time.
    """
    upkeep_wait_s: float = Field(600.0, ge=0, le=86_400)
    """What has waited so long for that is measured beside requests: a box that always has some would never do it."""


class ResidencySettings(Section):
    alpha: float = Field(1.02, ge=0, le=2)
    """Width of a window around a predicted request: Δ = mean + alpha x standard deviation of how far predictions
    were off.
    """
    delta_ms: float = Field(500.0, gt=0)
    """Δ before anything was seen."""
    delta_share_max: float = Field(0.01, gt=0)
    """Δ is at most this share of the mean time between two requests of an application; 1000: no limit, as in the
    paper.
    """
    history_window_s: float = Field(10.0, gt=0)
    """H, within which an application that was requested is spared, before two requests were seen."""
    tick_ms: float = Field(20.0, ge=1)
    """The residency loop runs at most this often."""
    reloads_per_min_max: int = Field(30, ge=1)
    """Changes of one application's variant in a minute before it is left alone."""
    patience_ms: float = Field(500.0, ge=0)
    """A request that finds only expected applications in its way waits so long for their windows to close; then these
    get smaller variants, where they have some.
    """
    neighbours_share: float = Field(1.0, ge=0, le=1)
    """Share of the budget that variants next to those that sessions use may take together, of what nobody else wants;
    0: none is brought.
    """


class PolicySettings(Section):
    eviction: str = "expected-utility"
    """Who leaves memory for whom: `expected-utility`; those of Edge-MultiAI: `iws-bfe`, `iws-bfe-unload-first`,
    `ws-bfe`, `bfe` and `lfe`; `lru`, the longest unused first; `none`, nobody, so that what finds no room is refused.
    """
    selection: str = "by-profile"
    """The variant that answers a request which names none: `by-profile` goes by what its application prefers,
    `most-accurate` does not.
    """
    batching: str = "by-profile"
    """Which waiting requests share a run: `by-profile`, as many as gain by it; `none`, never any.
    """
    dispatch: str = "least-slack"
    """Which of the requests whose turn it is runs next, and where, on a box whose processors have cores of their own
    (`least-slack`, `earliest-finish`, `affinity`, `fifo`, `round-robin`, `fixed`); one group of processors goes by
    turns and deadlines.
    """
    adaptation: str = "exchange"
    """Which variant serves each session that is promised a latency: `exchange`, or `jellyfish`, the paper's."""
    offload: str = "earliest-due"
    """Which frames sessions send that are promised an accuracy: `earliest-due`; `arise`, the paper's; what that is
    compared with: `arise-alpha`, `static`, `static-searched`, `clipper-like`, `clipper-like-searched`,
    `chameleon-like`.
    """
    allocation: str = "frontier"
    """Worker, batch and number at once of each stage of a pipeline: `frontier`, or `scrooge`, the paper's."""


class DispatchSettings(Section):
    fixed: dict[str, str] = {}
    """Under `policies.dispatch = "fixed"`, by model (`tenant/name`): the name of the processor that its runs stay on; a
    model that is not named stays where it runs quickest.
    """
    leave_out_parts: bool = False
    """Where a network serves in parts: load each part only on the processors where the quickest sequences of runs have
    it. That takes less memory, and leaves no way around a processor that is taken.
    """


class SelectionSettings(Section):
    loss_max: float = Field(0.005, ge=0, le=1)
    """Accuracy, as a share, that a faster variant may lose to the most accurate one, at 95 %, to answer in its place
    where an application prefers `balanced`.
    """


class TrialSettings(Section):
    samples_max: int = Field(64, ge=0)
    """Requests of a tenant that are held in memory, for ten seconds at most, so that an unverified variant can be tried
    on them, and a verified one compared with the original on them; 0 = no variant is tried or watched on requests.
    """
    bytes_max: int = Field(16 * MIB, ge=0)
    """What those of a tenant may take."""
    bytes_total_max: int = Field(64 * MIB, ge=0)
    """What those of all tenants may take."""
    core_share: float = Field(0.05, gt=0, le=1)
    """Processor time that trials may take, as a share of one core."""


class ProfileSettings(Section):
    run_weight: float = Field(0.1, ge=0, le=1)
    """Weight of a run in what is expected of the next one like it; 0 = always what the import measured."""
    correction: Literal["robust", "plain"] = "robust"
    """How runs correct what is expected. `plain`: weight × measured + (1 - weight) × expected, as published for Band.
    `robust`: the same, but one slow run counts for twice what was expected at most, and four that agree count at once.
    """


class DecisionSettings(Section):
    rows_max: int = Field(20_000, ge=100)
    """Decisions kept for `/v1/decisions`; the oldest go (about 1 kB each)."""
    queue_max: int = Field(2_000, ge=1)
    """Decisions that may wait for the writer; more are dropped and counted in `/metrics`."""


class RequestSettings(Section):
    notable_per_application: int = Field(64, ge=0)
    """Late, cold, failed and less accurate answers of an application that `/v1/applications/{application}/requests`
    has, the latest, beside a quarter as many samples; 0 = none are kept.
    """
    notable_max: int = Field(4096, ge=1)
    """The same of all applications together (about half a kilobyte each)."""


class AuditSettings(Section):
    rows_max: int = Field(10_000, ge=100)
    """Entries kept for `/v1/audit` of each tenant's changes, of admins', and of refused sign-ins; the oldest go."""
    kept_days: int = Field(365, ge=1)
    """Days after which entries go in any case."""


class BackupSettings(Section):
    kept: int = Field(7, ge=0)
    """Nightly backups that stay; 0 = none is made at night."""
    folder: Path | None = None
    """Where backups lie, a folder that is there, on another disk for example; None = `backups` in the state folder."""


class HistorySettings(Section):
    days: int = Field(30, ge=0, le=366)
    """Days for which the history keeps what happened, the latest 24 hours of them at 10 seconds, the others at 5
    minutes; 0 = there is none.
    """
    series_max: int = Field(2_000, ge=100, le=100_000)
    """Series that the history keeps, of which one tenant alone has seven eighths at most; one of 30 days takes 80 kB at
    most.
    """


class SecuritySettings(Section):
    failed_keys_per_min: int = Field(30, ge=1)
    """Wrong keys one address may send in a minute before it gets 429."""
    keys_per_tenant_max: int = Field(1000, ge=1)
    """Tenant and device keys of one tenant; all tenants together have ten times as many."""
    metrics_open: bool = False
    """Whether `/metrics` answers without a key; else an admin key sees all of it and a tenant's key its own part."""
    host_names: tuple[str, ...] = ()
    """Names under which browsers reach the box beside its own, its addresses and `localhost`, as a JSON list; under any
    other nobody is signed in.
    """
    sign_in_without_tls: bool = False
    """Whether browsers of other machines may sign in over plain HTTP, where whoever listens reads the key."""


class SessionSettings(Section):
    per_tenant_max: int = Field(256, ge=1)
    """Sessions of devices that one tenant may have."""
    all_max: int = Field(1024, ge=1)
    """Sessions of all tenants together."""
    credit: int = Field(2, ge=1, le=16)
    """Frames of a session that may be on their way without acknowledgement; one more is refused."""
    idle_s: float = Field(60.0, gt=0)
    """A session of which nothing was heard for so long ends; one that is paused, after 24 hours."""
    answers_bytes_max: int = Field(64 * MIB, ge=1024)
    """Answers of the last two seconds, for devices that ask again or come back, of all sessions; no tenant can take all
    of it."""


class PipelineSettings(Section):
    turn_off_s: float = Field(30.0, ge=0, le=3600)
    """So long a variant that no plan of a pipeline has any more stays wished for in memory."""
    window_ms: float = Field(450.0, ge=100, lt=1000)
    """Frames, items and run times by which pipelines are planned are those of so long, looked at twice a second; of
    fewer than eight frames it reaches further back.
    """


class SensorSettings(Section):
    interval_s: float = Field(2.0, ge=0, le=60)
    """Seconds between two rounds of reading the machine's sensors; 0 = never."""
    jtop: bool = False
    """Whether the service of jetson-stats is asked, too, on a Jetson with the extra `jetson`."""


class DiscoverySettings(Section):
    enabled: bool = False
    """Whether the box tells the local network of itself (`_inference._tcp`): its address, version and certificate, no
    tenants and no models. It takes the extra `discovery`.
    """
    name: str = Field("", max_length=60)
    """Name under which it does; empty: the machine's. Where another one has the name, this one becomes `NAME-2`."""


class LogSettings(Section):
    level: str = Field("info", pattern="^(debug|info|warning|error)$")
    """Lowest level written."""
    format: str = Field("auto", pattern="^(auto|json|console)$")
    """json for the journal, console for people; auto asks whether standard error is a terminal."""


class Settings(BaseSettings):
    """The whole tree; every field says its unit in its name and why its default is what it is."""

    model_config = SettingsConfigDict(
        env_prefix="APPLIANCE_", env_nested_delimiter="__", frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    state_dir: Path = Path("state")
    """Folder of the database, blobs, prepared forms and keys."""
    http: HttpSettings = HttpSettings()
    memory: MemorySettings = MemorySettings()
    processors: tuple[ProcessorSettings, ...] = Field((ProcessorSettings(),), min_length=1, max_length=8)
    """Processors as a JSON list of objects with kind, name, workers, threads_per_run and cores, `cpu` first; several of
    `cpu` with cores of their own, each with its workers; then `openvino`, `xnnpack`, `cuda`, `tensorrt` or `dla` where
    those are there; on the same cores they take the workers of `cpu`. `memory_bytes` bounds what is loaded on a card
    with memory of its own; `watts` and `price_per_hour` are what a worker takes and costs while it runs, for the costs
    of pipelines. Each model is measured on each kind, on the first processor of it, and serves on the kind that costs
    least. For measurements of the box on a processor that the machine does not have there is `emulated`, alone: each
    run holds a worker for as long as `emulated_ms` in the network's own metadata says (milliseconds by batch size, a
    JSON object), and every answer says so.
    """
    queues: QueueSettings = QueueSettings()
    residency: ResidencySettings = ResidencySettings()
    guard: GuardSettings = GuardSettings()
    imports: ImportSettings = ImportSettings()
    policies: PolicySettings = PolicySettings()
    dispatch: DispatchSettings = DispatchSettings()
    selection: SelectionSettings = SelectionSettings()
    trials: TrialSettings = TrialSettings()
    profiles: ProfileSettings = ProfileSettings()
    decisions: DecisionSettings = DecisionSettings()
    requests: RequestSettings = RequestSettings()
    audit: AuditSettings = AuditSettings()
    backups: BackupSettings = BackupSettings()
    history: HistorySettings = HistorySettings()
    security: SecuritySettings = SecuritySettings()
    sessions: SessionSettings = SessionSettings()
    pipelines: PipelineSettings = PipelineSettings()
    sensors: SensorSettings = SensorSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    log: LogSettings = LogSettings()
    _options: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._options = options

    def described(self) -> tuple[dict[str, Any], ...]:
        """Each setting in the order of the tree: `name` (`http.port`), `value`, `default`, `source` (`option`,
        `environment`, `file` or `default`) and `description`.
        """
        sources = {name: source for source, given in self._given() for name in _names(given)}
        values = self.model_dump(mode="json")
        return tuple(
            {
                "name": name,
                "value": _at(values, name),
                "default": default,
                "source": sources.get(name, "default"),
                "description": described,
            }
            for name, default, described in _fields()
        )

    def _given(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What each source says, the strongest last."""
        if config := os.environ.get("APPLIANCE_CONFIG"):
            yield "file", TomlConfigSettingsSource(type(self), toml_file=Path(config))()
        yield "environment", EnvSettingsSource(type(self))()
        yield "option", self._options

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        config = os.environ.get("APPLIANCE_CONFIG")
        toml = (TomlConfigSettingsSource(settings_cls, toml_file=Path(config)),) if config else ()
        return (init_settings, env_settings, *toml)


def _fields() -> Iterator[tuple[str, Any, str]]:
    """(name, default, description) of each setting, as `http.port`."""
    for section, field in Settings.model_fields.items():
        if isinstance(field.default, Section):
            defaults = field.default.model_dump(mode="json")
            for name, one in type(field.default).model_fields.items():
                yield f"{section}.{name}", defaults[name], one.description or ""
        else:
            yield section, to_jsonable_python(field.default), field.description or ""


def _names(given: Mapping[str, Any]) -> Iterator[str]:
    """Of the settings that a source says something of."""
    for section, value in given.items():
        if isinstance(value, Mapping):
            yield from (f"{section}.{name}" for name in value)
        elif isinstance(value, Section):
            yield from (f"{section}.{name}" for name in value.model_fields_set)
        else:
            yield section


def _at(values: Mapping[str, Any], name: str) -> Any:
    section, _, field = name.partition(".")
    return values[section][field] if field else values[section]
