"""Whether a build computes the same on another kind of processor, or as well.

A quantized network is rounded elsewhere by each kind, and what is one step apart in an early layer is far apart in the
end. What counts is how far it is from the network that it was made of: whoever comes as near to that as the first kind,
whose answers were measured, is no worse.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from appliance.domain.errors import RunFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.sessions import InferenceSessions, sessions_of

Arrays = Mapping[str, Any]


NO_FURTHER = 1.1
"""From the original, against the first kind: more is another network, less the noise of a few inputs."""


def check_same(sessions: InferenceSessions, loaded: Any, reference: Mapping[str, Any], cases: Sequence[Arrays]) -> None:
    """Run the reference, too, and compare; `reference` is a `Reference` as JSON.

    Raises: RunFailed, naming the output and by how much it differs.
    """
    form = PreparedForm(**reference["form"])
    own = sessions_of(form.kind, 1, 1)
    expected = own.load(form)
    original = None if reference["original"] is None else own.load(PreparedForm(**reference["original"]))
    for inputs in cases:
        wanted, found = own.run(expected, inputs, None), sessions.run(loaded, inputs, None)
        exact: Arrays = {}
        for name, array in wanted.items():
            share = difference(array, found.get(name))
            if share <= reference["difference_max"]:
                continue
            reason = f"output {name!r} differs by {share:.2g} of what {form.kind} computes"
            if original is not None and np.isfinite(share):
                exact = exact or own.run(original, inputs, None)
                theirs, ours = (from_original(exact.get(name), one[name]) for one in (wanted, found))
                if np.isfinite(theirs) and ours <= NO_FURTHER * theirs:
                    continue
                reason += (
                    f", and by {ours:.2g} of the network in full precision, from which that differs by {theirs:.2g}"
                )
            raise RunFailed(variant_id=form.build_id, reason=reason)


def from_original(exact: np.ndarray[Any, Any] | None, found: np.ndarray[Any, Any]) -> float:
    """As `difference`, of an output from that of the network in full precision, whatever number format it is in;
    infinite also where that has no such output.
    """
    if exact is None:
        return np.inf
    if exact.dtype.kind == found.dtype.kind == "f":
        exact, found = exact.astype(np.float64), found.astype(np.float64)
    return difference(exact, found)


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
