"""What has to come of an attack."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refused:
    """The upload or its import fails, with a sentence that has the `word`."""

    word: str = ""


@dataclass(frozen=True)
class Taken:
    """Odd, but no fault: it is imported."""


Expected = Refused | Taken
