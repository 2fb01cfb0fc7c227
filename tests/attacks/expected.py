"""What has to come of an attack."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refused:
    """The upload or its import fails, with a sentence that has the `word`."""

    word: str = ""


@dataclass(frozen=True)
class Taken:
    """Odd, but no fault: it is imported."""


@dataclass(frozen=True)
class Either:
    """It depends on the time and memory that the machine has; the sentence is checked where it is refused."""


Expected = Refused | Taken | Either
