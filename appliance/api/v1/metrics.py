"""The Prometheus text of `/metrics`, made from the telemetry when it is asked for.

A tenant's key sees the series of its own requests; what belongs to the box as a whole is for admins.
"""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from appliance.api.box import RunningBox
from appliance.runtime.telemetry import BUCKETS_S, PARTS, Histogram, Statistics, WindowCounts

LABELS = ("tenant", "application", "variant")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NS_PER_S = 1e9


def metrics_text(box: RunningBox, tenant: str | None) -> bytes:
    """All series of the box, or those of one calling tenant."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Series(box, tenant))
    return generate_latest(registry)


class _Series(Collector):
    """One scrape."""

    def __init__(self, box: RunningBox, tenant: str | None) -> None:
        self._box = box
        self._tenant = tenant

    def collect(self) -> Iterator[Metric]:
        statistics = {
            (tenant, application, variant): figures
            for (application, variant, tenant), figures in sorted(self._box.telemetry.statistics.items())
            if self._tenant in (None, tenant)
        }
        yield from _requests(statistics)
        if self._tenant is None:
            yield from _windows(self._box.telemetry.windows)
            yield from _memory(self._box)
            yield from _engine(self._box)


def _requests(statistics: dict[tuple[str, str, str], Statistics]) -> Iterator[Metric]:
    outcomes = CounterMetricFamily("appliance_requests", "Requests by how they ended.", labels=(*LABELS, "outcome"))
    starts = CounterMetricFamily(
        "appliance_starts", "Requests by whether a variant was warm.", labels=(*LABELS, "start")
    )
    rows = CounterMetricFamily("appliance_inferences", "Rows computed: requests times their batch.", labels=LABELS)
    late = CounterMetricFamily(
        "appliance_late", "Requests answered after their deadline, as their application wants it.", labels=LABELS
    )
    seconds = HistogramMetricFamily(
        "appliance_request_seconds", "Where the time of answered requests went.", labels=(*LABELS, "part")
    )
    for labels, figures in statistics.items():
        for outcome, count in sorted(figures.outcomes.items()):
            outcomes.add_metric([*labels, outcome], count)
        starts.add_metric([*labels, "warm"], figures.warm)
        starts.add_metric([*labels, "cold"], figures.cold)
        rows.add_metric(labels, figures.inferences)
        late.add_metric(labels, figures.late)
        for part in PARTS:
            histogram = figures.histograms[part]
            seconds.add_metric([*labels, part], _buckets(histogram), histogram.sum_ns / NS_PER_S)
    yield from (outcomes, starts, rows, late, seconds)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative, as the format wants them."""
    sums: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*BUCKETS_S, float("inf")), histogram.counts, strict=True):
        total += count
        sums.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
    return sums


def _windows(windows: Mapping[str, WindowCounts]) -> Iterator[Metric]:
    for name, text in (
        ("opened", "Windows around predicted requests that opened."),
        ("closed", "Windows that closed."),
        ("missed", "Windows that closed without a request."),
    ):
        counts = CounterMetricFamily(f"appliance_windows_{name}", text, labels=("application",))
        for application, figures in sorted(windows.items()):
            counts.add_metric([application], getattr(figures, name))
        yield counts


def _memory(box: RunningBox) -> Iterator[Metric]:
    snapshot = box.memory.snapshot()
    for name, text in (
        ("budget_bytes", "Bytes that loaded builds may take."),
        ("used_bytes", "Bytes counted as taken."),
        ("overhead_bytes", "Bytes of them that the processes of guarded builds take by themselves."),
        ("asleep_bytes", "Bytes of them that sleeping builds keep."),
    ):
        yield GaugeMetricFamily(f"appliance_memory_{name}", text, value=snapshot[name])
    for name in ("loads", "load_failures", "loads_skipped", "wakes", "evictions"):
        yield CounterMetricFamily(f"appliance_{name}", f"Builds: {name.replace('_', ' ')}.", value=snapshot[name])
    resident = GaugeMetricFamily("appliance_build_bytes", "Bytes of each build in memory.", labels=("build", "state"))
    for build in snapshot["builds"]:
        resident.add_metric([build["build"], build["state"]], build["bytes"])
    yield resident
    yield from _reloads(box)
    yield from _holdings(box)


def _reloads(box: RunningBox) -> Iterator[Metric]:
    labels = ("tenant", "application")
    text = "Loads of an application's variants in the last minute, those for requests too."
    reloads = GaugeMetricFamily("appliance_reloads_per_min", text, labels=labels)
    text = "Times that an application changed so often that it was left alone."
    thrashes = CounterMetricFamily("appliance_thrashes", text, labels=labels)
    for row in box.residency.snapshot()["applications"]:
        names = [row["application"].partition("/")[0], row["application"]]
        reloads.add_metric(names, row["reloads_per_min"])
        thrashes.add_metric(names, row["thrashes"])
    yield from (reloads, thrashes)


def _holdings(box: RunningBox) -> Iterator[Metric]:
    held = GaugeMetricFamily("appliance_tenant_memory_bytes", "Bytes that a tenant's models take.", labels=("tenant",))
    guarantee = GaugeMetricFamily(
        "appliance_tenant_memory_guarantee_bytes", "Bytes that are not taken for other tenants.", labels=("tenant",)
    )
    ceiling = GaugeMetricFamily(
        "appliance_tenant_memory_ceiling_bytes",
        "The most bytes that a tenant's models take, where that is limited.",
        labels=("tenant",),
    )
    for holding in box.shares.holdings(box.memory.residents()):
        held.add_metric([holding.tenant], holding.held_bytes)
        guarantee.add_metric([holding.tenant], holding.guarantee_bytes)
        if holding.ceiling_bytes is not None:
            ceiling.add_metric([holding.tenant], holding.ceiling_bytes)
    yield from (held, guarantee, ceiling)


def _engine(box: RunningBox) -> Iterator[Metric]:
    status = box.engine.status()
    yield GaugeMetricFamily("appliance_running", "Requests under way.", value=status["running"])
    queues = GaugeMetricFamily("appliance_queue_length", "Requests that wait.", labels=("application",))
    for application, length in sorted(status["queues"].items()):
        queues.add_metric([application], length)
    yield queues
    yield GaugeMetricFamily("appliance_media_waiting", "Pictures and sounds in decoding.", value=box.media.waiting)
    yield GaugeMetricFamily("appliance_body_bytes", "Bytes of request bodies in memory.", value=box.in_flight.bytes)
    yield CounterMetricFamily("appliance_decisions", "Decisions stored.", value=box.decisions.written)
    dropped = "Decisions that were not stored: they came too fast, or the disk was full."
    yield CounterMetricFamily("appliance_decisions_dropped", dropped, value=box.decisions.dropped)
    yield GaugeMetricFamily("appliance_ready", "Whether the box answers inference requests.", value=int(box.is_ready()))
