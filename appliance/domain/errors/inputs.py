"""What a caller sent and cannot be used."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


@dataclass(kw_only=True, eq=False)
class BadInput(ApplianceError):
    """What the caller sent cannot be used; `reason` says why, in words for them."""

    reason: str = ""

    def message(self) -> str:
        return self.reason or "what was sent cannot be used"


@dataclass(kw_only=True, eq=False)
class BadName(BadInput):
    what: str
    name: str
    rule: str = "use 1 to 63 of a-z 0-9 . _ - and start with a letter or digit"
    key: str | None = None
    """Where it stands in what was sent, as `stages[1].name`, where several names do."""

    def message(self) -> str:
        return f"{self.key + ': ' if self.key else ''}{self.name!r} is no name for a {self.what}: {self.rule}"


class BadTensor(BadInput):
    """Wrong name, type, shape or byte count of a tensor."""


class BadRegion(BadInput):
    """A shared memory object cannot be registered, or a tensor not be read from or written to it."""


class BadMedia(BadInput):
    """The picture, sound or text cannot be decoded."""


class BadMetadata(BadInput):
    """The metadata of an upload contradicts itself or the model."""


class BadQuota(BadInput):
    """The parts of a quota contradict one another."""


class BadModel(BadInput):
    """The ONNX file is refused."""


class BadArchive(BadInput):
    """The tar or zip is refused."""


@dataclass(kw_only=True, eq=False)
class BadSeries(BadInput):
    """There is no such series in the history, or it is another tenant's."""

    series: str

    def message(self) -> str:
        return f"{self.series!r} is no series of the history that this key sees; without `series` it lists those"


@dataclass(kw_only=True, eq=False)
class BadPeriod(BadInput):
    """The times of a question about the past contradict one another, or its points are too few."""

    field: str
    """`from`, `to` or `points`."""


@dataclass(kw_only=True, eq=False)
class BadEdit(BadInput):
    """An edit of a simulation cannot be made."""

    edit: str
    """Its place, as `edits[1].application`."""

    def message(self) -> str:
        return f"{self.edit}: {self.reason or 'cannot be made'}"


@dataclass(kw_only=True, eq=False)
class SloNotKept(BadInput):
    """No variant keeps the latency that an application promises, and the caller wanted to be strict about it."""

    variant: str
    """The fastest."""
    p99_ms: float
    latency_slo_ms: float


@dataclass(kw_only=True, eq=False)
class BadEncoding(BadInput):
    """A body is packed in a way that the box does not read."""


@dataclass(kw_only=True, eq=False)
class TooLarge(ApplianceError):
    what: str
    limit_bytes: int

    def message(self) -> str:
        return f"{self.what} is larger than the limit of {self.limit_bytes} bytes"
