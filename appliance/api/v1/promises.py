"""Warnings about an application: no variant keeps its SLO, or can ever fit into memory; variants are left out because
they are unverified.
"""

from appliance.domain.accuracy import CALIBRATION_SAMPLES_MIN
from appliance.domain.catalogue import Evidence, Verify, shown_by
from appliance.domain.errors import OutOfMemory, SloNotKept
from appliance.domain.slo import fits_alone, keeps_slo
from appliance.domain.states import VariantState
from appliance.domain.trial import Verdict
from appliance.runtime.catalogue import Entry
from appliance.runtime.residency.account import MemoryAccount
from appliance.wire.catalogue import NeverFitsWarning, SloWarning, UnverifiedWarning

_WORDS = {
    Verdict.RUNNING: "which does not decide yet",
    Verdict.DISMISSED: "and is dismissed",
    Verdict.PROMOTED: "and is promoted",
}


_COMPARED_ON = {
    Evidence.NOISE: "noise",
    Evidence.CALIBRATION: f"fewer than {CALIBRATION_SAMPLES_MIN} samples, which they were calibrated with, too,",
}


def warnings_of(entry: Entry, account: MemoryAccount) -> list[SloWarning | UnverifiedWarning | NeverFitsWarning]:
    """Return what the tenant should know of the application's promises and choices."""
    return [*never_fits_warnings(entry, account), *_slo_warnings(entry), *_unverified_warnings(entry)]


def never_fits_warnings(entry: Entry, account: MemoryAccount) -> list[NeverFitsWarning]:
    """Return one where no variant that may answer a request without a name can ever fit into memory."""
    if not entry.order or any(account.can_ever_fit(one) for one in entry.order):
        return []
    least = min(entry.order, key=lambda one: (one.need_bytes, one.name))
    error = OutOfMemory(
        build_id=least.build_id,
        need_bytes=least.need_bytes,
        budget_bytes=account.budget_bytes,
        variant=least.name,
        can_fit=False,
        would_fit=account.unverified_that_fit(entry),
    )
    return [
        NeverFitsWarning(
            variants=[one.name for one in entry.order],
            need_bytes=least.need_bytes,
            budget_bytes=account.budget_bytes,
            detail=str(error),
        )
    ]


def _unverified_warnings(entry: Entry) -> list[UnverifiedWarning]:
    left_out = [
        one for one in entry.model.variants if one.state is VariantState.READY and not entry.application.may_choose(one)
    ]
    if not left_out:
        return []
    doubtful = [one for one in left_out if not one.is_off]
    tried = {one.name: one.trial for one in left_out if one.trial is not None and one.trial.samples}
    told = [f"{name} {shown_by(trial)}, {_WORDS[trial.verdict]}" for name, trial in tried.items()]
    for evidence, words in _COMPARED_ON.items():
        if untried := [one.name for one in left_out if one.name not in tried and one.evidence is evidence]:
            told.append(f"{', '.join(untried)}: compared with the original on {words} only")
    told += sorted({one.accuracy.unused for one in left_out if one.accuracy and one.accuracy.unused})
    told.append("Unverified variants answer only requests that name them")
    if any(one.awaits_trial for one in left_out) and entry.application.verify is Verify.ON:
        told.append("While the box is idle, requests run on them and on the original for comparison")
    if doubtful:
        which = f" for {', '.join(one.name for one in doubtful)}" if len(doubtful) < len(left_out) else ""
        samples = f"{CALIBRATION_SAMPLES_MIN} calibration samples or more, or evaluation samples,"
        told.append(f"Upload the model with {samples} or set unverified to allow{which}")
    return [UnverifiedWarning(variants=[one.name for one in left_out], detail=". ".join(told))]


def _slo_warnings(entry: Entry) -> list[SloWarning]:
    """Return one, of the fastest variant, where no variant that the box would choose keeps the SLO; none while one is
    not measured.
    """
    slo_ms = entry.application.latency_slo_ms
    if slo_ms is None or not entry.order or any(keeps_slo(s.p99_ms, slo_ms) for s in entry.order):
        return []
    p99_ms, variant = min((s.p99_ms or 0.0, s.variant.name) for s in entry.order)
    return [SloWarning(variant=variant, p99_ms=p99_ms, detail=_detail(variant, p99_ms, slo_ms))]


def out_of_reach(entry: Entry) -> str:
    """Return why no variant keeps the SLO even where it waits for no other run; empty: one does, or is not measured."""
    slo_ms = entry.application.latency_slo_ms or 0.0
    return "".join(one.detail for one in _slo_warnings(entry) if not fits_alone(one.p99_ms, slo_ms))


def refuse_broken(entry: Entry) -> None:
    """Raises: SloNotKept where no variant keeps the SLO."""
    for warning in _slo_warnings(entry):
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
