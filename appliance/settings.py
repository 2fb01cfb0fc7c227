"""One frozen tree of settings, read once by the roots (`app`, `cli`).

Sources, strongest first: command-line options, environment (`APPLIANCE_HTTP__PORT=9000`), the TOML file named by
`APPLIANCE_CONFIG`, defaults.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, IPvAnyNetwork, PrivateAttr
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


def _without_brackets(host: str) -> str:
    """Return an address as the system writes it: without the brackets that one of IPv6 has in a URL."""
    return host.removeprefix("[").removesuffix("]")


class Section(BaseModel):
    """Base of the branches: frozen, and a misspelt key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class HttpSettings(Section):
    host: Annotated[str, AfterValidator(_without_brackets)] = "127.0.0.1"
    """Address to listen on; loopback until an operator opens it. `0.0.0.0` is all addresses of IPv4, `::` also those of
    IPv6.
    """
    port: int = Field(8080, ge=0, le=65535)
    """TCP port; 0 takes a free one (printed at start)."""
    unix_socket: Path | None = None
    """File at which the box also listens, as a Unix socket and without TLS, for clients on the box itself."""
    unix_socket_mode: str = Field("0600", pattern="^(0600|0660)$")
    """Mode of the Unix socket: `0600` lets the box's own user connect, `0660` also its group. Clients need a key all
    the same.
    """
    shared_memory: bool = False
    """Let clients on the box itself pass tensors in shared memory (`/v2/systemsharedmemory`)."""
    shared_memory_regions_max: int = Field(32, ge=1, le=1000)
    """Shared memory regions that one tenant may have registered. All tenants together may have ten times as many."""
    shared_memory_bytes_max: int = Field(256 * MIB, ge=1024)
    """Bytes of one tenant's shared memory regions together."""
    body_bytes_max: int = Field(64 * MIB, ge=1024)
    """Largest body of an inference or predict request. Waiting bodies count against memory."""
    frame_bytes_max: int = Field(4 * MIB, ge=1024)
    """Largest frame of a session. Frames of a session that arrive or wait for their answers take at most twice as much.
    """
    form_bytes_max: int = Field(64 * MIB, ge=1024)
    """Largest model that `POST /v1/models` takes at once. Larger models go by `/v1/uploads`."""
    upload_bytes_max: int = Field(8 * GIB, ge=1024)
    """Largest upload by `/v1/uploads`."""
    uploads_per_tenant_max: int = Field(64, ge=1)
    """Uploads by `/v1/uploads` that one tenant may have under way. All tenants together may have ten times as many."""
    inflight_bytes_max: int = Field(256 * MIB, ge=1024)
    """Bytes of the bodies of all requests under way, and of what is made of them (arrays, texts, outputs that wait to
    be written). One tenant takes at most seven times what is free.
    """
    results_bytes_max: int = Field(64 * MIB, ge=1024)
    """Bytes of the results that wait to be fetched (`wait=false`), each for a minute. One tenant takes at most seven
    times what is free. A result that finds no room is lost.
    """
    unread_bytes_max: int = Field(256 * MIB, ge=1024)
    """Bytes of answers that callers have yet to read, without the answer that was written last. Beyond it the box
    closes connections: of the tenant with most unread bytes, the connection that has been behind for longest.
    """
    connections_max: int = Field(1000, ge=1)
    """Open connections at once. For one more the box closes a connection: the oldest without a valid key, of the
    address that has most of them; else an idle one of the tenant that has most. Else the new connection gets 503.
    """
    connections_reserved: int = Field(64, ge=0)
    """Connections that one tenant alone cannot have. While no key was shown on them, they are closed last."""
    head_s: float = Field(10.0, gt=0)
    """Seconds after which a connection without a complete head of a request is closed."""
    head_bytes_max: int = Field(32 * 1024, ge=1024, le=MIB)
    """Largest head of a request: its first line and headers."""
    body_s: float = Field(10.0, gt=0)
    """Seconds after which a connection is closed whose body comes, or whose answer is read, more slowly than
    `body_bytes_per_s_min`.
    """
    body_bytes_per_s_min: float = Field(1000.0, gt=0)
    """Slowest rate of a body or an answer that the box waits for."""
    keep_alive_s: float = Field(30.0, gt=0)
    """Seconds that an idle connection stays open."""
    drain_s: float = Field(20.0, ge=0)
    """Seconds that the box waits for running requests at SIGTERM."""
    tls_cert: Path | None = None
    """PEM certificate. With `tls_key` the box speaks HTTPS."""
    tls_key: Path | None = None
    """PEM private key of `tls_cert`."""
    tls_self_signed: bool = False
    """Make and use a self-signed certificate in the state folder."""
    proxies: tuple[IPvAnyNetwork | Literal["unix"], ...] = ()
    """Addresses and networks of reverse proxies in front of the box, as a JSON list; `unix` stands for callers of the
    Unix socket. The box reads `X-Forwarded-For`, `-Proto`, `-Host` and `-Prefix` of requests that these send.
    """
    cors_origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may call the box with a key, as a JSON list; `*` stands for all. The cookie of
    a browser that is signed in works for the box's own pages only.
    """


class MemorySettings(Section):
    budget_bytes: int | None = Field(None, ge=MIB)
    """Bytes that loaded builds may occupy. Empty: `budget_share` of what is available at start."""
    budget_share: float = Field(0.5, gt=0, le=0.95)
    """Share of the available memory (of the machine, or below the limit of its container) that is taken when
    `budget_bytes` is empty. The rest is for activations, bodies and other programs.
    """
    reserve_bytes: int | None = Field(None, ge=0)
    """Memory of the machine, and below the limit of its container, that stays free. When other programs would leave
    less, the budget shrinks; it grows back afterwards. Empty: 256 MiB, or a quarter of what is available at start where
    that is less.
    """
    loads_parallel_max: int = Field(2, ge=1, le=16)
    """Loads at once; each reserves its measured peak."""
    asleep_share: float = Field(0.25, ge=0, le=0.9)
    """Share of the budget that sleeping builds may take together: sessions whose weights were given back, in memory
    again in milliseconds. When it is full, the tenant that has most of it by its weight loses its longest unused build.
    0: nothing sleeps.
    """
    wait_ms_max: float = Field(30_000.0, gt=0)
    """Longest wait of a request without a deadline for pinned memory to become free."""


class ProcessorSettings(Section):
    kind: str = "cpu"
    """`cpu`, `openvino`, `xnnpack`, `cuda`, `tensorrt`, `dla` or `emulated`."""
    name: str | None = None
    """Name in metrics, profiles and plans; empty: the kind."""
    workers: int | None = Field(None, ge=1, le=64)
    """Runs at once. Empty: the number of `cores`, or else of usable cores, divided by `threads_per_run`. Of a
    container's quota only whole cores count.
    """
    threads_per_run: int = Field(1, ge=1, le=64)
    """Threads of one run. Workers × threads should not exceed the cores: two runs on one thread each finish more than
    one run on two threads.
    """
    cores: Literal["auto"] | tuple[int, ...] = Field("auto", max_length=1024)
    """Numbers of the cores to which the threads of runs are pinned. Empty: the system places the threads. `auto`: a
    single `cpu` without `workers` becomes a processor for each sort of core, `cpu-big` and `cpu-little`, where the
    machine has big and little cores; otherwise as empty. `openvino` places its threads itself.
    """

    memory_bytes: int | None = Field(None, ge=MIB)
    """Bytes that builds may take of a device's own memory (`cuda`, `tensorrt` on a card). Empty: all of it without half
    a gigabyte.
    """
    watts: float | None = Field(None, ge=0, le=10_000)
    """Watts that one running worker takes, where no sensor tells; they give the joules of pipelines' frames."""
    price_per_hour: float | None = Field(None, ge=0, le=1e9)
    """Price of an hour of one worker, in any unit. Empty: pipelines' frames have no price."""


class QueueSettings(Section):
    len_max: int = Field(1024, ge=1)
    """Requests of one tenant to one application that may wait; more get 429. It bounds the line of pictures and sounds
    to decode, too.
    """
    total_max: int = Field(4096, ge=1)
    """Requests of all applications that may wait. One tenant takes at most seven times what is free."""
    wait_ms_max: float = Field(10_000.0, gt=0)
    """Longest expected wait for a worker, by the work before a request. A request that would wait longer gets 429 at
    once.
    """
    timeout_ms: float = Field(30_000.0, gt=0)
    """Deadline of a request that states none and whose application has no SLO."""
    media_threads: int | None = Field(None, ge=1, le=64)
    """Threads that decode pictures and sound and read outputs. Empty: as many as workers. More than the cores only adds
    waiting.
    """
    quick_us_max: float = Field(250.0, ge=0)
    """Median run time below which a model runs on the event loop: a change of threads would cost more than the run. 0:
    never.
    """
    inline_ms_max: float = Field(5.0, ge=0, le=50)
    """Longest expected run on the event loop of a model that is known to be harmless. It runs there only when nothing
    else waits or runs and no other connection has asked for 50 ms. 0: never.
    """
    sequences_max: int = Field(1024, ge=1)
    """States of stateful models kept at once. One tenant takes at most seven times what is free."""
    sequence_idle_s: float = Field(60.0, gt=0)
    """Seconds without use after which a state is dropped."""


class GuardSettings(Section):
    isolation: str = Field("auto", pattern="^(auto|process|none)$")
    """Builds that run in a process of their owner's. `auto`: builds that the import has not shown to be harmless;
    `process`: all; `none`: none, and any tenant that may upload a model can stop the box.
    """
    run_s_max: float = Field(30.0, gt=0)
    """Seconds after which a run in a guard is stopped."""
    run_bytes_max: int = Field(GIB, ge=64 * MIB)
    """Memory that runs in a guard may take in addition to its builds. A run that asks for more fails."""
    processes_max: int = Field(8, ge=1, le=64)
    """Guards at once. For one more, the guard that was unused longest ends."""
    idle_s: float = Field(60.0, gt=0)
    """Seconds without a build after which a guard ends."""


class ImportSettings(Section):
    confine: str = Field("auto", pattern="^(auto|required)$")
    """Confinement of the processes that import and measure (Landlock, filtered system calls). `required`: where they
    cannot be confined, no import is accepted and nothing is measured again, and a process that is not confined ends.
    `auto`: they are confined as far as the machine can, which the log and `/v1/system` say.
    """
    jobs_parallel_max: int = Field(1, ge=1, le=8)
    """Import jobs at once; the rest queue. While models are measured and made into further variants, as many small
    models begin in addition. Where the first look at a file takes more than 3 s, small imports of other tenants go on
    beside it, two more at most.
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
    """Accuracy, or without labels agreement with the original, below which a made variant is excluded."""
    ladder_max: int = Field(3, ge=1, le=8)
    """Input sizes made of a model with free height and width."""
    batch_max: int = Field(8, ge=1, le=128)
    """Largest batch that a model with a free batch axis is measured with. Batches double from 1 on, while runs are
    cheap and fit into memory. Larger values make imports take longer.
    """
    nice: int = Field(10, ge=0, le=19)
    """Niceness of the children, so that serving goes first."""
    jobs_kept_days: int = Field(30, ge=1)
    """Days after which a finished job is forgotten."""
    eval_samples_max: int = Field(64, ge=1)
    """Samples per measurement of accuracy or agreement."""
    calibration_samples_max: int = Field(32, ge=1)
    """Inputs used to calibrate static quantisation."""
    parts_max: int = Field(16, ge=0, le=64)
    """Most parts that a model is cut into, where some kind of processor does not run all of it. 1: nothing is cut; 0:
    as many as the kinds' operators make.
    """
    part_ops_min: int = Field(7, ge=1, le=1000)
    """Operators below which a part that has next to no work joins its neighbour, where that takes nothing from the
    neighbour's kinds of processors. 1: no part joins.
    """
    upkeep_idle_s: float = Field(5.0, ge=0, le=3600)
    """Seconds without a request after which known models are measured anew (for example after an update of libraries).
    Measuring rests as soon as a request comes. 0: at any time.
    """
    upkeep_wait_s: float = Field(600.0, ge=0, le=86_400)
    """Seconds after which a waiting measurement runs beside requests. A box that always has requests would otherwise
    never measure.
    """


class ResidencySettings(Section):
    alpha: float = Field(1.02, ge=0, le=2)
    """Width of a window around a predicted request: Δ = mean + alpha × standard deviation of the errors of past
    predictions.
    """
    delta_ms: float = Field(500.0, gt=0)
    """Δ before anything was seen."""
    delta_share_max: float = Field(0.01, gt=0)
    """Largest Δ, as a share of the mean time between two requests of an application. 1000: no limit, as in the paper.
    """
    history_window_s: float = Field(10.0, gt=0)
    """H: seconds after a request for which an application is spared, before two of its requests were seen."""
    tick_ms: float = Field(20.0, ge=1)
    """Shortest time between two rounds of the residency loop."""
    reloads_per_min_max: int = Field(30, ge=1)
    """Changes of one application's variant in a minute after which it is left alone."""
    patience_ms: float = Field(500.0, ge=0)
    """Longest wait of a request for which only expected applications must make room, until their windows close. Then
    these applications get smaller variants, where they have some.
    """
    neighbours_share: float = Field(1.0, ge=0, le=1)
    """Share of the budget that variants next to those in use by sessions may take together, of memory that is otherwise
    free. 0: no such variant is loaded.
    """


class PolicySettings(Section):
    eviction: str = "expected-utility"
    """Policy for which models leave memory for others: `expected-utility`; of Edge-MultiAI `iws-bfe`,
    `iws-bfe-unload-first`, `ws-bfe`, `bfe` and `lfe`; `lru`, the longest unused first; `none`, so that a request for
    which there is no room is refused.
    """
    selection: str = "by-profile"
    """Policy for the variant that answers a request which names none: `by-profile` goes by what its application
    prefers, `most-accurate` does not.
    """
    batching: str = "by-profile"
    """Policy for which waiting requests share a run: `by-profile`, as many as gain by it; `none`, never any."""
    dispatch: str = "least-slack"
    """Policy for which of the requests whose turn it is runs next, and where, on a box whose processors have cores of
    their own (`least-slack`, `earliest-finish`, `affinity`, `fifo`, `round-robin`, `fixed`). A single group of
    processors goes by turns and deadlines.
    """
    adaptation: str = "exchange"
    """Policy for the variants of sessions with a promised latency: `exchange`, or the paper's `jellyfish`."""
    offload: str = "earliest-due"
    """Policy for the frames that sessions with a promised accuracy send: `earliest-due`; the paper's `arise`; its
    baselines `arise-alpha`, `static`, `static-searched`, `clipper-like`, `clipper-like-searched`, `chameleon-like`.
    """
    allocation: str = "frontier"
    """Policy for worker, batch and number at once of each stage of a pipeline: `frontier`, or the paper's `scrooge`."""


class DispatchSettings(Section):
    fixed: dict[str, str] = {}
    """Processor on which a model's runs stay under `policies.dispatch = "fixed"`: a name by model (`tenant/name`).
    Other models stay where they run quickest.
    """
    leave_out_parts: bool = False
    """Where a network serves in parts, load each part only on the processors that the quickest sequences of runs use.
    That takes less memory, and leaves no alternative to a busy processor.
    """


class SelectionSettings(Section):
    loss_max: float = Field(0.005, ge=0, le=1)
    """Accuracy, as a share, that a faster variant may lose to the most accurate one, at 95 %, to answer in its place
    where an application prefers `balanced`.
    """


class TrialSettings(Section):
    samples_max: int = Field(64, ge=0)
    """Requests of a tenant that are held in memory for trials, for ten seconds at most: an unverified variant is tried
    on them, and a verified one compared with the original. 0: no variant is tried or compared on requests.
    """
    bytes_max: int = Field(16 * MIB, ge=0)
    """Bytes of one tenant's requests that are held for trials."""
    bytes_total_max: int = Field(64 * MIB, ge=0)
    """Bytes of all tenants' requests that are held for trials."""
    core_share: float = Field(0.05, gt=0, le=1)
    """Processor time that trials may take, as a share of one core."""


class ProfileSettings(Section):
    run_weight: float = Field(0.1, ge=0, le=1)
    """Weight of a run in the expected time of the next similar run. 0: always the time that the import measured."""
    correction: Literal["robust", "plain"] = "robust"
    """How runs correct expected times. `plain`: weight × measured + (1 - weight) × expected, as published for Band.
    `robust`: the same, but a slow run counts for at most twice the expected time, and four runs that agree count at
    once.
    """


class DecisionSettings(Section):
    rows_max: int = Field(20_000, ge=100)
    """Decisions kept for `/v1/decisions`; the oldest go (about 1 kB each)."""
    queue_max: int = Field(2_000, ge=1)
    """Decisions that may wait for the writer. More are dropped and counted in `/metrics`."""


class RequestSettings(Section):
    notable_per_application: int = Field(64, ge=0)
    """Late, cold, failed and less accurate answers of an application that `/v1/applications/{application}/requests`
    lists, the latest, with a quarter as many samples. 0: none are kept.
    """
    notable_max: int = Field(4096, ge=1)
    """Answers of all applications together that are kept in this way (about half a kilobyte each)."""


class AuditSettings(Section):
    rows_max: int = Field(10_000, ge=100)
    """Entries kept for `/v1/audit`, each of a tenant's changes, of admins' changes and of refused sign-ins. The oldest
    go.
    """
    kept_days: int = Field(365, ge=1)
    """Days after which entries go in any case."""


class BackupSettings(Section):
    kept: int = Field(7, ge=0)
    """Nightly backups that stay. 0: none is made at night."""
    folder: Path | None = None
    """Existing folder for backups, for example on another disk. None: `backups` in the state folder."""


class HistorySettings(Section):
    days: int = Field(30, ge=0, le=366)
    """Days for which the history is kept: the latest 24 hours at 10 seconds, older ones at 5 minutes. 0: there is none.
    """
    series_max: int = Field(2_000, ge=100, le=100_000)
    """Series that the history keeps. One tenant has at most seven eighths of them. A series of 30 days takes at most 80
    kB.
    """


class SecuritySettings(Section):
    failed_keys_per_min: int = Field(30, ge=1)
    """Wrong keys that one address may send in a minute before it gets 429."""
    keys_per_tenant_max: int = Field(1000, ge=1)
    """Tenant and device keys of one tenant. All tenants together have ten times as many."""
    metrics_open: bool = False
    """Answer `/metrics` without a key. Otherwise an admin key sees all of it and a tenant's key its own part."""
    host_names: tuple[str, ...] = ()
    """Further names of the box under which browsers may sign in, as a JSON list. Its own name, its addresses and
    `localhost` need no entry.
    """
    sign_in_without_tls: bool = False
    """Let browsers of other machines sign in over plain HTTP, where a listener on the network can read the key."""


class SessionSettings(Section):
    per_tenant_max: int = Field(256, ge=1)
    """Sessions of devices that one tenant may have."""
    all_max: int = Field(1024, ge=1)
    """Sessions of all tenants together."""
    credit: int = Field(2, ge=1, le=16)
    """Frames of a session that may be under way without acknowledgement. A further frame is refused."""
    idle_s: float = Field(60.0, gt=0)
    """Seconds of silence after which a session ends. A paused session ends after 24 hours."""
    answers_bytes_max: int = Field(64 * MIB, ge=1024)
    """Bytes of the answers of the last two seconds, of all sessions, for devices that ask again or come back. No tenant
    can take all of it.
    """


class PipelineSettings(Section):
    turn_off_s: float = Field(30.0, ge=0, le=3600)
    """Seconds for which a variant stays wished for in memory when no plan of a pipeline has it any more."""
    window_ms: float = Field(450.0, ge=100, lt=1000)
    """Length of the window of frames, items and run times by which pipelines are planned; the box looks at it twice
    a second. With fewer than eight frames the window reaches further back.
    """


class SensorSettings(Section):
    interval_s: float = Field(2.0, ge=0, le=60)
    """Seconds between two rounds of reading the machine's sensors. 0: never."""
    jtop: bool = False
    """On a Jetson with the extra `jetson`, also ask the service of jetson-stats."""


class DiscoverySettings(Section):
    enabled: bool = False
    """Announce the box on the local network (`_inference._tcp`): its address, version and certificate, no tenants and
    no models. This takes the extra `discovery`.
    """
    name: str = Field("", max_length=60)
    """Name under which the box is announced. Empty: the machine's. Where another box has the name, this one becomes
    `NAME-2`.
    """


class NotificationSettings(Section):
    private_addresses: tuple[IPvAnyNetwork, ...] = ()
    """Networks that notifications may be sent to beside the public internet, as a JSON list such as
    `["192.168.1.0/24"]`. Every tenant can have messages posted there.
    """


class LogSettings(Section):
    level: str = Field("info", pattern="^(debug|info|warning|error)$")
    """Lowest level written."""
    format: str = Field("auto", pattern="^(auto|json|console)$")
    """`json` for the journal, `console` for people. `auto`: console when standard error is a terminal."""


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
    """Processors as a JSON list of objects with kind, name, workers, threads_per_run and cores. `cpu` comes first, or
    several of `cpu` with cores of their own, each with its workers. Then come `openvino`, `xnnpack`, `cuda`, `tensorrt`
    or `dla` where the machine has them; on the same cores they take the workers of `cpu`. `memory_bytes` bounds what is
    loaded on a card with memory of its own. `watts` and `price_per_hour` are what a running worker takes and costs, for
    the costs of pipelines. Each model is measured on each kind, on the first processor of that kind, and serves on the
    kind that costs least. `emulated`, alone, measures the box on a processor that the machine does not have: each run
    holds a worker for as long as `emulated_ms` in the network's own metadata says (milliseconds by batch size, a JSON
    object), and every answer says so.
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
    notifications: NotificationSettings = NotificationSettings()
    log: LogSettings = LogSettings()
    _options: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._options = options

    def described(self) -> tuple[dict[str, Any], ...]:
        """Return each setting in the order of the tree: `name` (`http.port`), `value`, `default`, `source` (`option`,
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
        """Yield the settings of each source, the strongest last."""
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
    """Yield (name as `http.port`, default, description) of each setting."""
    for section, field in Settings.model_fields.items():
        if isinstance(field.default, Section):
            defaults = field.default.model_dump(mode="json")
            for name, one in type(field.default).model_fields.items():
                yield f"{section}.{name}", defaults[name], one.description or ""
        else:
            yield section, to_jsonable_python(field.default), field.description or ""


def _names(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the settings that a source sets."""
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
