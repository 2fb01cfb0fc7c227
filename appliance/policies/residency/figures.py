"""The numbers of applications in columns, for policies that weigh all of them at once.

Each application packs its own once, until it changes; a table of all is made by joining what they packed. Times are
nanoseconds since the clock's start, whole ones: a float does not tell them apart on a box that has been up for months.
"""

from array import array
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEVER = -(2**63)
"""The time of a request that is not expected."""
_FIELDS = (
    ("moments", "q"),  # how many there are of it in the table of predictions
    ("options", "q"),  # and in the table of options
    ("next_ns", "q"),  # NEVER where none is expected
    ("spread_ns", "q"),  # below 0: as those of all
    ("since_ns", "q"),
    ("requests", "d"),  # since then; 0 where that is not known
    ("hit_rate", "d"),  # not a number where all predictions are true
    ("weight", "d"),
    ("floor_accuracy", "d"),
    ("floor_sleeps", "q"),
    ("loaded_bytes", "q"),  # below 0: nothing is
    ("loaded_accuracy", "d"),
    ("has_wishes", "q"),
)
_OPTION_FIELDS = (
    ("load_ns", "q"),
    ("sleeps", "q"),
    ("bytes", "q"),
    ("peak_bytes", "q"),
    ("accuracy", "d"),
    ("is_loaded", "q"),
    ("is_floor", "q"),
)
_ROW, _OPTION = (Struct("=" + "".join(code for _, code in fields)) for fields in (_FIELDS, _OPTION_FIELDS))
_ROW_TYPE, _OPTION_TYPE = (
    np.dtype([(name, {"q": "i8", "d": "f8"}[code]) for name, code in fields]) for fields in (_FIELDS, _OPTION_FIELDS)
)


class Figures:
    """What one application packs: itself, the times of its predicted requests, its options."""

    __slots__ = ("moments", "options", "row")

    def __init__(self, row: Sequence[float], moments_ns: Sequence[int], options: tuple[int, bytes]) -> None:
        """`row` from `next_ns` on, in the order of the fields; `options` as `packed` found them."""
        moments_ns = moments_ns or (NEVER,)
        count, self.options = options
        self.row = _ROW.pack(len(moments_ns), count, *row)
        self.moments = array("q", moments_ns).tobytes()


def packed(options: Iterable[Sequence[float]]) -> tuple[int, bytes]:
    """How many options, and the fields of each, in their order."""
    found = [_OPTION.pack(*option) for option in options]
    return len(found), b"".join(found)


class Table:
    """Of several applications, in their order: `rows[field]`, and of what each has several of, `moments_ns` and
    `options[field]`, one after the other.
    """

    def __init__(self, figures: Sequence[Figures]) -> None:
        self.rows: NDArray[Any] = np.frombuffer(b"".join([one.row for one in figures]), _ROW_TYPE)
        self.moments_ns: NDArray[np.int64] = np.frombuffer(b"".join([one.moments for one in figures]), np.int64)
        self.options: NDArray[Any] = np.frombuffer(b"".join([one.options for one in figures]), _OPTION_TYPE)
        places = np.arange(len(figures))
        self.of_moment: NDArray[np.intp] = np.repeat(places, self.rows["moments"])
        """Whose each one is."""
        self.of_option: NDArray[np.intp] = np.repeat(places, self.rows["options"])
