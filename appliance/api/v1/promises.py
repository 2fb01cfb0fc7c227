"""What a tenant is told of an application's promises: whether any variant keeps its SLO."""

from appliance.domain.errors import SloNotKept
from appliance.domain.slo import fits_alone, keeps_slo
from appliance.runtime.catalogue import Entry
from appliance.wire.catalogue import SloWarning


def warnings_of(entry: Entry) -> list[SloWarning]:
    """One, of the fastest variant, where no variant that the box would choose keeps the SLO; none while one is not
    measured.
    """
    slo_ms = entry.application.latency_slo_ms
    if slo_ms is None or not entry.order or any(keeps_slo(s.p99_ms, slo_ms) for s in entry.order):
        return []
    p99_ms, variant = min((s.p99_ms or 0.0, s.variant.name) for s in entry.order)
    return [SloWarning(variant=variant, p99_ms=p99_ms, detail=_detail(variant, p99_ms, slo_ms))]


def refuse_broken(entry: Entry) -> None:
    """Raises: SloNotKept where there is a warning."""
    for warning in warnings_of(entry):
        slo_ms = entry.application.latency_slo_ms or 0.0
        raise SloNotKept(reason=warning.detail, variant=warning.variant, p99_ms=warning.p99_ms, latency_slo_ms=slo_ms)


def _detail(variant: str, p99_ms: float, slo_ms: float) -> str:
    if fits_alone(p99_ms, slo_ms):
        return (
            f"no variant surely keeps {slo_ms:g} ms: the fastest, {variant}, takes {p99_ms:g} ms (P99), "
            f"but {2 * p99_ms:g} ms behind another run; {2 * p99_ms:g} ms or a smaller model would do"
        )
    return (
        f"no variant keeps {slo_ms:g} ms: the fastest, {variant}, takes {p99_ms:g} ms (P99), so requests without a "
        f"timeout of their own will get 504; {2 * p99_ms:g} ms or a smaller model would do"
    )
