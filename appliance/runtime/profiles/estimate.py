"""How long a run takes, learnt from runs one by one."""

TRUSTED_NS = 5_000_000_000
"""An estimate above what the import measured counts for so long after the last run. Else requests that are refused
because they are expected to be late would never find out that the processor is as quick again as it was."""
SLACK_NS = 1000.0
JUMP_MAX = 2.0
"""A run counts for at most so many times what was expected: one that was disturbed moves little, and where all became
ten times as slow that is known after forty. `SLACK_NS` more, so that one that took no time is no end."""
SETTLING = 4
"""Of runs of which nothing was measured before, the quickest of the first so many is where learning begins: the very
first also pays for pages and buffers."""
SURPRISE, SURPRISES = 1.25, 4
"""So many runs one after the other that all took so many times longer than was expected, or all shorter, are no chance:
the processor has become another one."""
_TAIL_UP = 1.1
_TAIL_DOWN = _TAIL_UP ** (-1 / 99)
"""At rest where one run in a hundred is above."""
TAIL_MAX = 100.0


class Estimate:
    """Median and P99 of a run, in O(1) per run and O(1) memory.

    The median follows by exponential smoothing, new = α · measured + (1 - α) · old (Band, Section 4.3.2), where what is
    measured counts for `JUMP_MAX` · old at most; of a skewed distribution that is a little above the median. After
    `SURPRISES` it is what the mildest of these runs took, and no more than `JUMP_MAX` times another one than it was: a
    core slowed by half is known after four runs, not 16. An estimate that is trusted no more falls to a shorter run at
    once. The P99 is kept as a multiple of the median, so
    that it follows when everything becomes slower or quicker: a tenth more with each run above it, a ninety-ninth of
    that less with each other, which rests where 1 % are above.

    A plain estimate follows the paper's formula alone, from the first run on.
    """

    __slots__ = (
        "_is_plain",
        "_mildest_ns",
        "_surprised_ns",
        "_surprises",
        "count",
        "last_ns",
        "p50_ns",
        "reference_ns",
        "saved_ns",
        "settling",
        "tail",
    )

    def __init__(self, p50_ns: float, tail: float, reference_ns: float = 0.0, *, is_plain: bool = False) -> None:
        """`tail`: P99 / P50, at least 1. `reference_ns`: what the import measured of it; 0 = nothing."""
        self.p50_ns = p50_ns
        self.tail = tail
        self.reference_ns = reference_ns
        self.settling = 0 if reference_ns else SETTLING
        self.count = 0
        self.last_ns = 0
        self._is_plain = is_plain
        self._surprises = 0
        """Of the last runs, one after the other, that took longer; less than 0: that took shorter ..."""
        self._mildest_ns = 0.0
        """... what that of them took which was the nearest to what was expected ..."""
        self._surprised_ns = 0
        """... and when the first of them ended."""
        self.saved_ns = 0.0
        """The median that was saved last; 0 = never."""

    @property
    def p99_ns(self) -> float:
        return self.p50_ns * self.tail

    def ran(self, took_ns: int, now_ns: int, alpha: float) -> bool:
        """Learn from a run that ended now; whether it was the last of `SURPRISES`."""
        self.count += 1
        old_ns = self.p50_ns
        idle_ns = now_ns - self.last_ns
        self.last_ns = now_ns
        if self.count <= self.settling and not self._is_plain:
            if took_ns < old_ns:
                self.p50_ns = float(took_ns)
            return False
        if took_ns < old_ns and not self._is_plain and idle_ns > TRUSTED_NS and old_ns > self.reference_ns > 0:
            self.p50_ns = max(float(took_ns), self.reference_ns)
            return False
        if took_ns > old_ns * self.tail:
            self.tail = min(TAIL_MAX, self.tail * _TAIL_UP)
        elif self.tail > 1.0:
            self.tail *= _TAIL_DOWN
        if self._is_plain:
            self.p50_ns = alpha * took_ns + (1 - alpha) * old_ns
            return False
        most_ns = JUMP_MAX * old_ns + SLACK_NS
        self.p50_ns = old_ns + alpha * ((took_ns if took_ns < most_ns else most_ns) - old_ns)
        self._note(took_ns, old_ns, now_ns)
        if abs(self._surprises) < SURPRISES or not alpha:
            return False
        self._surprises = 0
        self.p50_ns = min(most_ns, max(old_ns / JUMP_MAX, self._mildest_ns))
        return True

    def follow(self, changed: "Estimate") -> None:
        """Of another case on the same processor it has just shown that it is no chance. What has not run since is as
        many times slower than at the import.
        """
        if self.last_ns < changed._surprised_ns and self.reference_ns and changed.reference_ns:
            self.p50_ns = self.reference_ns * changed.p50_ns / changed.reference_ns
            self._surprises = 0

    def _note(self, took_ns: int, old_ns: float, now_ns: int) -> None:
        """A run where `old_ns` was expected."""
        if took_ns > SURPRISE * old_ns + SLACK_NS:
            way, milder = 1, min
        elif took_ns * SURPRISE + SLACK_NS < old_ns:
            way, milder = -1, max
        else:
            self._surprises = 0
            return
        if self._surprises * way > 0:
            self._surprises += way
            self._mildest_ns = milder(took_ns, self._mildest_ns)
        else:
            self._surprises, self._mildest_ns, self._surprised_ns = way, took_ns, now_ns
