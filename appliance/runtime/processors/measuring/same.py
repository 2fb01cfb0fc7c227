"""Whether a build computes the same on another kind of processor."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from appliance.domain.errors import RunFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.sessions import Sessions, sessions_of

Arrays = Mapping[str, Any]


def check_same(sessions: Sessions, loaded: Any, reference: Mapping[str, Any], cases: Sequence[Arrays]) -> None:
    """Run the reference, too, and compare; `reference` is a `Reference` as JSON.

    Raises: RunFailed, naming the output and by how much it differs.
    """
    form = PreparedForm(**reference["form"])
    own = sessions_of(form.kind, 1, 1)
    expected = own.load(form)
    for inputs in cases:
        wanted, found = own.run(expected, inputs, None), sessions.run(loaded, inputs, None)
        for name, array in wanted.items():
            share = difference(array, found.get(name))
            if share > reference["difference_max"]:
                reason = f"output {name!r} differs by {share:.2g} of what {form.kind} computes"
                raise RunFailed(variant_id=form.build_id, reason=reason)


def difference(wanted: np.ndarray[Any, Any], found: np.ndarray[Any, Any] | None) -> float:
    """Norm of the difference as a share of the norm; infinite where they are not to be compared."""
    if found is None or wanted.shape != found.shape or wanted.dtype != found.dtype:
        return np.inf
    if wanted.dtype.kind not in "biuf":
        return 0.0 if bool(np.all(wanted == found)) else np.inf
    left, right = wanted.astype(np.float64), found.astype(np.float64)
    if not np.array_equal(np.isfinite(left), np.isfinite(right)):
        return np.inf
    left, right = np.nan_to_num(left, posinf=0, neginf=0), np.nan_to_num(right, posinf=0, neginf=0)
    apart = float(np.linalg.norm(left - right))
    return apart / max(float(np.linalg.norm(left)), 1e-12) if apart else 0.0
