"""The Prometheus text of `/metrics`, made from the telemetry when it is asked for.

A tenant's key sees the series of its own requests; what belongs to the box as a whole is for admins. With a thousand
applications it has a hundred thousand lines, so they are written a few at a time, in parts of turns of the event loop:
the client library of Prometheus makes a whole page, or at least a whole family, at once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from prometheus_client.utils import floatToGoString

from appliance import log
from appliance.api.box import RunningBox
from appliance.api.v1.served import each_served, served_by
from appliance.clock import NS_PER_S
from appliance.domain.pipeline import NoAnswer
from appliance.domain.robustness import Served, fairness, robustness
from appliance.domain.sensors import Quantity
from appliance.domain.states import ProcessorState
from appliance.runtime.sessions.figures import Mean, SessionFigures
from appliance.runtime.telemetry import BUCKETS_S, PARTS, Histogram, Statistics, WindowCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES = 16
"""Lines that are written between two looks at the clock."""
_number: Callable[[float], str] = floatToGoString
_BOUNDS = tuple(_number(bound) for bound in (*BUCKETS_S, float("inf")))
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_SENSED: Mapping[Quantity, tuple[str, str, float]] = {
    Quantity.CELSIUS: ("celsius", "Temperatures.", 1),
    Quantity.WATTS: ("watts", "Power.", 1),
    Quantity.MEGAHERTZ: ("hertz", "Clocks.", 1e6),
    Quantity.RPM: ("rpm", "Turns of fans in a minute.", 1),
    Quantity.PERCENT: ("ratio", "Load of devices, and speed of fans, as a share.", 0.01),
    Quantity.BYTES: ("bytes", "Memory of devices that is taken.", 1),
}
"""What a sensor measures → the unit of its family, what it says, and what one is in that unit."""

_Figures = Mapping[tuple[str, str, str], Statistics]
"""(tenant, application, variant) → figures."""
_SERVED: Sequence[tuple[str, str, Callable[[Served], float | None]]] = (
    ("warm_ratio", "Share of requests that found a variant in memory.", lambda one: one.warm_share),
    ("cold_ratio", "Share of requests that were answered after a load.", lambda one: one.cold_share),
    (
        "accuracy_ratio",
        "Mean accuracy of the answers; without labels, agreement.",
        lambda one: one.accuracy,
    ),
    ("accuracy_normalised", "The same; 0: the worst variant, 1: the best.", lambda one: one.normalised),
    ("robustness", "Warm share times `accuracy_ratio`.", lambda one: one.robustness),
)
"""Gauges of each application: the end of the name, what it says, and the figure."""
_Sample = tuple[str, float]
"""Labels as `_labels` writes them, and the value."""


async def metrics_text(box: RunningBox, tenant: str | None, owner: str) -> bytes:
    """Return all series of the box, or those of one calling tenant (`tenant`), made in the owner's parts of turns.

    Each series is as of the instant at which it is written.
    """
    lines = _lines(box, tenant)
    some: Iterator[list[str]] = iter(lambda: list(islice(lines, LINES)), [])
    return b"".join(await box.turns.collect(owner, ("".join(each).encode() for each in some)))


def _lines(box: RunningBox, tenant: str | None) -> Iterator[str]:
    """Yield lines, and an empty one for each step of work that writes none."""
    figures: dict[tuple[str, str, str], Statistics] = {}
    for application in sorted(box.telemetry.applications()):
        for variant, caller, one in sorted(box.telemetry.of_callers(application), key=itemgetter(0, 1)):
            if tenant in (None, caller):
                figures[caller, application, variant] = one
        yield ""
    yield from _requests(figures)
    yield from _served(box, figures)
    yield from _sessions(box, tenant)
    yield from of_pipelines(box, tenant)
    if tenant is None:
        yield from _all_served(box)
        yield from _windows(dict(sorted(box.telemetry.windows.items())))
        yield from _memory(box)
        yield from _run_times(box)
        yield from _engine(box)
        yield from _planning(box)
        yield from of_serve_loop(box)
        yield from _sensors(box)


# -- the format --------------------------------------------------------------------------------------------------------


def _counter(name: str, text: str, samples: Iterable[_Sample]) -> Iterator[str]:
    return _family(f"{name}_total", "counter", text, samples)


def _gauge(name: str, text: str, samples: Iterable[_Sample]) -> Iterator[str]:
    return _family(name, "gauge", text, samples)


def _family(name: str, kind: str, text: str, samples: Iterable[_Sample]) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
    for labels, value in samples:
        yield f"{name}{labels} {_number(value)}\n"


def _one(value: float) -> list[_Sample]:
    """The sample of a family without labels."""
    return [("", value)]


def _labels(**values: str) -> str:
    """As they stand behind a name, in the order of their names."""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in sorted(values.items())) + "}"


# -- what there is -----------------------------------------------------------------------------------------------------


def _requests(figures: _Figures) -> Iterator[str]:
    yield from _counter(
        "appliance_requests",
        "Requests by how they ended.",
        (
            (_of(whose, outcome=outcome), count)
            for whose, each in figures.items()
            for outcome, count in sorted(each.outcomes.items())
        ),
    )
    yield from _counter(
        "appliance_starts",
        "Requests by whether a variant was warm.",
        (
            (_of(whose, start=start), count)
            for whose, each in figures.items()
            for start, count in (("warm", each.warm), ("cold", each.cold))
        ),
    )
    rows = ((_of(whose), each.inferences) for whose, each in figures.items())
    yield from _counter("appliance_inferences", "Rows computed: requests times their batch.", rows)
    runs = ((_of(whose), sum(count for count, _ in each.runs.values())) for whose, each in figures.items())
    text = "Runs; requests that shared one are counted with the first of them."
    yield from _counter("appliance_runs", text, runs)
    text = "Runs of parts of networks, by the group of processors and the kind of the one of them."
    yield from _counter("appliance_part_runs", text, _of_parts(figures, 0, 1))
    text = "What these runs have taken."
    yield from _counter("appliance_part_run_seconds", text, _of_parts(figures, 1, 1 / NS_PER_S))
    text = "Requests answered after their deadline, as their application wants it."
    yield from _counter("appliance_late", text, ((_of(whose), each.late) for whose, each in figures.items()))
    yield from _seconds("appliance_request_seconds", "Where the time of answered requests went.", figures)


def _served(box: RunningBox, figures: _Figures) -> Iterator[str]:
    """Figures of each application by calling tenant."""
    by_variant: dict[tuple[str, str], list[tuple[str, Statistics]]] = {}
    for (caller, application, variant), each in figures.items():
        by_variant.setdefault((caller, application), []).append((variant, each))
    found: dict[tuple[str, str], Served] = {}
    for whose, own in by_variant.items():
        found[whose] = served_by(box, whose[1], own)
        yield ""
    for name, text, figure in _SERVED:
        rows = (
            (_labels(tenant=caller, application=of), value)
            for (caller, of), one in found.items()
            if (value := figure(one)) is not None
        )
        yield from _gauge(f"appliance_application_{name}", text, rows)


def _all_served(box: RunningBox) -> Iterator[str]:
    """Figures over applications, with the requests of all tenants."""
    found: list[Served] = []
    for one in each_served(box, None):
        found.append(one)
        yield ""
    for name, text, value in (
        ("robustness", "Mean over applications of warm share times `accuracy_ratio`.", robustness(found)),
        ("fairness", "Jain's index of the applications' warm shares; 1: all alike.", fairness(found)),
    ):
        yield from _gauge(f"appliance_{name}", text, [] if value is None else _one(value))


def _of_parts(figures: _Figures, figure: int, unit: float) -> Iterator[_Sample]:
    for whose, each in figures.items():
        for (number, group, kind), counts in sorted(each.parts.items()):
            yield _of(whose, number=str(number), group=group, kind=kind), counts[figure] * unit


def _sessions(box: RunningBox, tenant: str | None) -> Iterator[str]:
    states: Counter[tuple[str, str]] = Counter(
        (live.session.tenant, live.state.value) for live in box.sessions.live.values()
    )
    samples = (
        (_labels(tenant=of, state=state), count)
        for (of, state), count in sorted(states.items())
        if tenant in (None, of)
    )
    yield from _gauge("appliance_sessions", "Devices' sessions.", samples)
    frames = (
        (_labels(tenant=of, end=end), count)
        for of, ends in sorted(box.sessions.totals.items())
        if tenant in (None, of)
        for end, count in sorted(ends.items())
    )
    yield from _counter("appliance_frames", "Frames of sessions by how they ended.", frames)
    for name, text in (
        ("windows", "Windows of sessions' promises that are over, of sessions that have not ended."),
        ("windows_kept", "Those of them in which the promise was kept."),
    ):
        sums: Counter[str] = Counter()
        for live in box.sessions.live.values():
            sums[live.session.tenant] += live.windows if name == "windows" else live.kept
        rows = ((_labels(tenant=of), count) for of, count in sorted(sums.items()) if tenant in (None, of))
        yield from _gauge(f"appliance_session_{name}", text, rows)
    yield from _session_figures(box, tenant)


_SESSION_FIGURES: tuple[tuple[str, str, Callable[[SessionFigures], Mean], float], ...] = (
    ("drop", "Mean drop of accuracy of the windows that were served, 0 to 1.", lambda one: one.drop, 1.0),
    ("drop_error", "Mean of estimated less measured drop of these windows.", lambda one: one.drop_error, 1.0),
    ("batch_rows", "Mean rows of the runs of sessions' frames.", lambda one: one.batch_rows, 1.0),
    ("start_difference_seconds", "Mean of real less planned start of these runs.", lambda one: one.start_ms, 1e-3),
)


def _session_figures(box: RunningBox, tenant: str | None) -> Iterator[str]:
    """Means over the sessions that have not ended, by tenant."""
    lives = [live for live in box.sessions.live.values() if tenant in (None, live.session.tenant)]
    for name, text, figure_of, unit in _SESSION_FIGURES:
        means: defaultdict[str, Mean] = defaultdict(Mean)
        for live in lives:
            one = figure_of(live.figures)
            means[live.session.tenant].add(one.total, one.count)
        rows = ((_labels(tenant=of), one.value * unit) for of, one in sorted(means.items()) if one.value is not None)
        yield from _gauge(f"appliance_session_{name}", f"{text} Of sessions that have not ended.", rows)


def of_pipelines(box: RunningBox, tenant: str | None) -> Iterator[str]:
    lives = [live for live in box.pipelines.all() if tenant in (None, live.pipeline.tenant)]
    named = [(live, {"tenant": live.pipeline.tenant, "pipeline": live.pipeline.name}) for live in lives]
    frames = (
        (_labels(end=end, **of), count)
        for live, of in named
        for end, count in (
            ("in_time", live.frames.in_time),
            ("late", live.frames.late),
            ("dropped", live.frames.dropped),
            ("errors", live.frames.errors),
            ("failed", live.frames.failed),
        )
    )
    text = "Frames of pipelines: in time, late, with items dropped or failed (late ones, too), or unanswered."
    yield from _counter("appliance_pipeline_frames", text, frames)
    stages = [
        (live, {"stage": stage, **of}, one.counts) for live, of in named for stage, one in sorted(live.figures.items())
    ]
    items = ((_labels(**of), one.items) for _live, of, one in stages)
    yield from _counter("appliance_pipeline_items", "Items that stages of pipelines began with.", items)
    bare = (
        (_labels(none=none, **of), getattr(one, none))
        for _live, of, one in stages
        for none in sorted(map(str, NoAnswer))
    )
    text = "Those of them that stages gave no answer about, by the reason."
    yield from _counter("appliance_pipeline_items_without_answer", text, bare)
    late = ((_labels(**of), one.late_frames) for _live, of, one in stages)
    text = "Frames late or with items dropped, by the stage that was the first to drop one, or to end one too late."
    yield from _counter("appliance_pipeline_late_frames", text, late)
    known = {live.pipeline.id: box.pipelines.ballooning(live.pipeline.id) for live, _of in named}
    ballooning = (
        (_labels(**of), known[live.pipeline.id][of["stage"]])
        for live, of, _one in stages
        if of["stage"] in known[live.pipeline.id]
    )
    text = "What runs of stages take over what was measured, as their pipelines are planned with it."
    yield from _gauge("appliance_pipeline_ballooning", text, ballooning)
    spent = (
        (_labels(kind=kind, **of), took_ns / NS_PER_S)
        for live, of in named
        for kind, took_ns in sorted(live.spending.by_kind.items())
    )
    yield from _counter("appliance_pipeline_seconds", "Processor time of pipelines, by kind of processor.", spent)
    costs = [(of, live.account.total) for live, of in named]
    joules = ((_labels(**of), cost.joules) for of, cost in costs if cost.joules is not None)
    yield from _counter("appliance_pipeline_joules", "What that took, where watts are known of all of it.", joules)
    prices = ((_labels(**of), cost.price) for of, cost in costs if cost.price is not None)
    yield from _counter("appliance_pipeline_price", "What that cost, where prices are set of all of it.", prices)
    plans = [(live.plan, of) for live, of in named if live.plan is not None]
    fps = ((_labels(**of), plan.fps if plan.feasible else 0.0) for plan, of in plans)
    yield from _gauge("appliance_pipeline_planned_fps", "Frames a second that pipelines are planned for.", fps)
    clients = ((_labels(**of), float(len(live.clients))) for live, of in named)
    yield from _gauge("appliance_pipeline_clients", "Clients that have joined pipelines.", clients)


def of_serve_loop(box: RunningBox) -> Iterator[str]:
    single = (
        (_labels(kind=kind), took_ns / NS_PER_S) for kind, took_ns in sorted(box.engine.single_calls.by_kind.items())
    )
    text = "Processor time of requests that are no pipeline's, by kind of processor."
    yield from _counter("appliance_single_seconds", text, single)
    spent = (
        (_labels(kind=kind), took_ns / NS_PER_S) for kind, took_ns in sorted(box.pipelines.spending.by_kind.items())
    )
    text = "Processor time of all pipelines, of those that are no more, too; `host` is no processor's busy time."
    yield from _counter("appliance_pipelines_seconds", text, spent)
    figures = box.pipelines.figures
    if figures is None:
        return
    yield from _counter("appliance_pipeline_plans", "Times that pipelines were planned.", _one(figures.rounds))
    yield from _counter("appliance_pipeline_problems", "Problems that were solved for that.", _one(figures.plans))
    text = "Plans that were not applied, because what they were about had changed."
    yield from _counter("appliance_pipeline_plans_stale", text, _one(figures.stale))
    text = "Times that no plan was found in time."
    yield from _counter("appliance_pipeline_plans_given_up", text, _one(figures.given_up))
    text = "What the latest planning took."
    yield from _gauge("appliance_pipeline_planning_seconds", text, _one(figures.last_ms / 1e3))


def _planning(box: RunningBox) -> Iterator[str]:
    planning = box.sessions.planning
    figures = planning.figures
    for name, text in (
        ("plans", "Plans of sessions that were enacted."),
        ("late_plans", "Plans that came too late and were not."),
        ("admissions", "Promises that were made."),
        ("refusals", "Promises that could not be made."),
        ("removals", "Promises that could not be kept any longer."),
    ):
        yield from _counter(f"appliance_session_{name}", text, _one(getattr(figures, name)))
    for name, text in (
        ("switches", "Switches of devices to another variant, by how that was in memory."),
        ("selections", "Variants of plans of sessions, by how they were in memory."),
        ("changes", "Those of them that the plan before did not have."),
    ):
        counts = getattr(figures, name)
        found = ((_labels(found=found), float(counts[found])) for found in ("awake", "asleep", "absent"))
        yield from _counter(f"appliance_session_{name}", text, found)
    batches = planning.batch_counts()
    ends = ((_labels(end=end), float(getattr(batches, end))) for end in ("full", "short"))
    yield from _counter("appliance_session_batches", "Planned batches, by whether all their frames were in.", ends)
    text = "Planned batches that began later than planned, with their grace."
    yield from _counter("appliance_session_batches_late", text, _one(batches.late))
    count, mean_ms, p99_ms = planning.decision_ms()
    yield from _counter("appliance_session_decisions", "Decisions of the planners of sessions.", _one(count))
    times = ((_labels(figure=figure), ms / 1e3) for figure, ms in (("mean", mean_ms), ("p99", p99_ms)))
    yield from _gauge("appliance_session_decision_seconds", "What the latest of them took.", times)
    text = "Share of the processors' time that sessions' plans take."
    yield from _gauge("appliance_session_planned_share", text, _one(planning.ledger.planned))
    text = "Share of the processors' time that other requests have taken of late."
    yield from _gauge("appliance_unplanned_share", text, _one(planning.ledger.unplanned))


def _of(whose: tuple[str, str, str], **others: str) -> str:
    tenant, application, variant = whose
    return _labels(tenant=tenant, application=application, variant=variant, **others)


def _seconds(name: str, text: str, figures: _Figures) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} histogram\n"
    for whose, each in figures.items():
        for part in PARTS:
            histogram = each.histograms[part]
            # the bound stands between application and part, where the order of names wants it
            before, _, after = _of(whose, part=part, le="?").partition("?")
            total = 0
            for bound, count in zip(_BOUNDS, _counts(histogram), strict=True):
                total += count
                yield f"{name}_bucket{before}{bound}{after} {_number(total)}\n"
            labels = _of(whose, part=part)
            yield f"{name}_count{labels} {_number(total)}\n"
            yield f"{name}_sum{labels} {_number(histogram.sum_ns / NS_PER_S)}\n"


def _counts(histogram: Histogram) -> tuple[int, ...]:
    """As of one instant: buckets and count of one scrape agree."""
    return tuple(histogram.counts)


def _windows(windows: Mapping[str, WindowCounts]) -> Iterator[str]:
    for name, text in (
        ("opened", "Windows around predicted requests that opened."),
        ("closed", "Windows that closed."),
        ("missed", "Windows that closed without a request."),
    ):
        samples = ((_labels(application=one), float(getattr(figures, name))) for one, figures in windows.items())
        yield from _counter(f"appliance_windows_{name}", text, samples)


def _memory(box: RunningBox) -> Iterator[str]:
    snapshot = box.memory.snapshot()
    for name, text in (
        ("budget_bytes", "Bytes that loaded builds may take."),
        ("used_bytes", "Bytes counted as taken."),
        (
            "overhead_bytes",
            "Bytes of them that guards, fork servers and planners take beside builds.",
        ),
        ("asleep_bytes", "Bytes of them that sleeping builds keep."),
    ):
        yield from _gauge(f"appliance_memory_{name}", text, _one(snapshot[name]))
    for name in ("loads", "load_failures", "loads_skipped", "wakes", "evictions"):
        yield from _counter(f"appliance_{name}", f"Builds: {name.replace('_', ' ')}.", _one(snapshot[name]))
    builds = ((_labels(build=one["build"], state=one["state"]), one["bytes"]) for one in snapshot["builds"])
    yield from _gauge("appliance_build_bytes", "Bytes of each build in memory.", builds)
    yield from _reloads(box)
    yield from _holdings(box)


def _run_times(box: RunningBox) -> Iterator[str]:
    text = "Run time of a build that was seen, over that of its import."
    builds = ((_labels(build=build, shape=shape), factor) for build, shape, factor in box.profiles.ballooned())
    yield from _gauge("appliance_build_ballooning", text, builds)
    text = "Times that runs of a build became much slower or quicker than at its import."
    yield from _counter("appliance_profile_drifts", text, _one(box.profiles.drifts))


def _reloads(box: RunningBox) -> Iterator[str]:
    rows = []
    for row in box.residency.rows():
        rows.append(row)
        yield ""

    def each(figure: str) -> Iterator[_Sample]:
        for row in rows:
            application = row["application"]
            yield _labels(tenant=application.partition("/")[0], application=application), row[figure]

    text = "Loads of an application's variants in the last minute, those for requests too."
    yield from _gauge("appliance_reloads_per_min", text, each("reloads_per_min"))
    text = "Times that an application changed so often that it was left alone."
    yield from _counter("appliance_thrashes", text, each("thrashes"))


def _holdings(box: RunningBox) -> Iterator[str]:
    holdings = [(_labels(tenant=one.tenant), one) for one in box.shares.holdings(box.memory.holders())]
    held = ((labels, one.held_bytes) for labels, one in holdings)
    yield from _gauge("appliance_tenant_memory_bytes", "Bytes that a tenant's models take.", held)
    text = "Bytes that are not taken for other tenants."
    guarantees = ((labels, one.guarantee_bytes) for labels, one in holdings)
    yield from _gauge("appliance_tenant_memory_guarantee_bytes", text, guarantees)
    text = "The most bytes that a tenant's models take, where that is limited."
    ceilings = ((labels, one.ceiling_bytes) for labels, one in holdings if one.ceiling_bytes is not None)
    yield from _gauge("appliance_tenant_memory_ceiling_bytes", text, ceilings)


def _engine(box: RunningBox) -> Iterator[str]:
    status = box.engine.status()
    yield from _gauge("appliance_running", "Requests under way.", _one(status["running"]))
    queues = ((_labels(application=one), length) for one, length in sorted(status["queues"].items()))
    yield from _gauge("appliance_queue_length", "Requests that wait.", queues)
    statuses = [(_labels(processor=one.description.name), one) for one in box.processor_statuses()]
    yield from _counter("appliance_processor_runs", "Runs by processor.", ((of, one.runs) for of, one in statuses))
    text = "What these runs have taken, by processor."
    yield from _counter("appliance_processor_busy_seconds", text, ((of, one.busy_ms / 1e3) for of, one in statuses))
    yield from _gauge("appliance_media_waiting", "Pictures and sounds in decoding.", _one(box.media.waiting))
    yield from _gauge("appliance_body_bytes", "Bytes of request bodies in memory.", _one(box.in_flight.bytes))
    deferred = box.deferred
    yield from _gauge(
        "appliance_requests_deferred", "Requests under way that are answered later.", _one(deferred.under_way)
    )
    yield from _gauge("appliance_results_kept", "Requests that are over and wait to be fetched.", _one(deferred.kept))
    yield from _gauge("appliance_results_bytes", "Bytes of their results.", _one(deferred.results_bytes))
    yield from _counter("appliance_decisions", "Decisions stored.", _one(box.decisions.written))
    dropped = "Decisions that were not stored: they came too fast, or the disk was full."
    yield from _counter("appliance_decisions_dropped", dropped, _one(box.decisions.dropped))
    text = "Lines of the log that were not written, because the earlier lines were not read."
    yield from _counter("appliance_log_lines_dropped", text, _one(log.dropped()))
    yield from _gauge("appliance_ready", "Whether the box answers inference requests.", _one(int(box.is_ready())))


def _sensors(box: RunningBox) -> Iterator[str]:
    """What is unknown has no sample."""
    readings = box.sensors.now().readings
    for quantity, (unit, text, factor) in _SENSED.items():
        samples = [
            (_labels(device=one.device, name=one.name, source=one.source), one.value * factor)
            for one in readings
            if one.quantity is quantity and one.value is not None
        ]
        if samples:
            yield from _gauge(f"appliance_sensor_{unit}", text, samples)
    statuses = box.processor_statuses()
    throttled = ((_labels(processor=s.description.name), int(s.state is ProcessorState.THROTTLED)) for s in statuses)
    yield from _gauge("appliance_processor_throttled", "Whether it is too hot, or short of power.", throttled)
