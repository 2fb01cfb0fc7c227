"""What of a guard's answer is believed: tensors are checked against what was asked."""

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from appliance.runtime.processors.guard import messages as m
from appliance.tasks.base import TokenRow, TokenRows

_DIGITS_MAX = 18


def loaded(fields: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Bytes of weights that are mapped, and names of the outputs. Raises: m.BadMessage."""
    if not fields or not (fields[0].isascii() and fields[0].isdigit()) or len(fields[0]) > _DIGITS_MAX:
        raise m.BadMessage("it does not say how much it has mapped")
    return int(fields[0]), fields[1:]


def outputs(tensors: Mapping[str, np.ndarray], names: tuple[str, ...]) -> Mapping[str, np.ndarray]:
    """Of a run that was asked for these outputs. Raises: m.BadMessage."""
    if tuple(tensors) != names:
        raise m.BadMessage("it answered with other outputs")
    return tensors


def token_rows(tensors: Mapping[str, np.ndarray], texts: int, tokens_max: int) -> TokenRows:
    """Of so many texts, each cut at `tokens_max`. Raises: m.BadMessage."""
    lengths, ids, types, cut = (tensors.get(name) for name in ("lengths", "ids", "types", "cut"))
    if any(one is None or one.dtype != np.int64 or one.ndim != 1 for one in (lengths, ids, types, cut)):
        raise m.BadMessage("it answered with other tensors")
    assert lengths is not None and ids is not None and types is not None and cut is not None
    counts = lengths.tolist()
    if not len(counts) == len(cut) == texts or not all(0 <= count <= tokens_max for count in counts):
        raise m.BadMessage("it answered for other texts")
    if not sum(counts) == len(ids) == len(types):
        raise m.BadMessage("its tokens do not add up")
    ends = list(accumulate(counts))
    spans = zip([0, *ends], ends, cut.tolist(), strict=False)
    return [TokenRow(ids[start:end].tolist(), types[start:end].tolist(), bool(is_cut)) for start, end, is_cut in spans]
