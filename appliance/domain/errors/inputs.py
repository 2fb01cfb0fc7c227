"""What a caller sent and cannot be used."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


@dataclass(kw_only=True, eq=False)
class BadInput(ApplianceError, status=422, title="The input cannot be used"):
    """What the caller sent cannot be used; `reason` says why, in words for them."""

    reason: str = ""

    def message(self) -> str:
        return self.reason or "what was sent cannot be used"


@dataclass(kw_only=True, eq=False)
class BadName(BadInput, title="Not a legal name"):
    what: str
    name: str
    rule: str = "use 1 to 63 of a-z 0-9 . _ - and start with a letter or digit"
    key: str | None = None
    """Where it stands in what was sent, as `stages[1].name`, where several names do."""

    def message(self) -> str:
        return f"{self.key + ': ' if self.key else ''}{self.name!r} is no name for a {self.what}: {self.rule}"


class BadTensor(BadInput, title="A tensor does not fit the model"):
    """Wrong name, type, shape or byte count of a tensor."""


class BadRegion(BadInput, title="The shared memory cannot be used"):
    """A shared memory object cannot be registered, or a tensor not be read from or written to it."""


class BadMedia(BadInput, title="The picture, sound or text cannot be decoded"):
    """The picture, sound or text cannot be decoded."""


class BadMetadata(BadInput, title="The metadata does not fit"):
    """The metadata of an upload contradicts itself or the model."""


class BadReceiver(BadInput, title="Nothing can be sent to the receiver"):
    """No notification can be sent to it."""


class BadQuota(BadInput, title="The quota contradicts itself"):
    """The parts of a quota contradict one another."""


class BadModel(BadInput, title="The model is refused"):
    """The ONNX file is refused."""


class BadArchive(BadInput, title="The archive is refused"):
    """The tar or zip is refused."""


@dataclass(kw_only=True, eq=False)
class BadSeries(BadInput, title="There is no such series"):
    """There is no such series in the history, or it is another tenant's."""

    series: str

    def message(self) -> str:
        return f"{self.series!r} is no series of the history that this key sees; without `series` it lists those"


@dataclass(kw_only=True, eq=False)
class BadPeriod(BadInput, title="The times contradict one another"):
    """The times of a question about the past contradict one another, or its points are too few."""

    field: str
    """`from`, `to` or `points`."""


@dataclass(kw_only=True, eq=False)
class BadEdit(BadInput, title="An edit cannot be made"):
    """An edit of a simulation cannot be made."""

    edit: str
    """Its place, as `edits[1].application`."""

    def message(self) -> str:
        return f"{self.edit}: {self.reason or 'cannot be made'}"


@dataclass(kw_only=True, eq=False)
class SloNotKept(BadInput, title="No variant keeps the SLO"):
    """No variant keeps the latency that an application promises, and the caller wanted to be strict about it."""

    variant: str
    """The fastest."""
    p99_ms: float
    latency_slo_ms: float


@dataclass(kw_only=True, eq=False)
class BadEncoding(BadInput, status=415, title="The body is packed in a way that is not read"):
    """A body is packed in a way that the box does not read."""


@dataclass(kw_only=True, eq=False)
class TooLarge(ApplianceError, status=413, title="Larger than the limit"):
    what: str
    limit_bytes: int

    def message(self) -> str:
        return f"{self.what} is larger than the limit of {self.limit_bytes} bytes"
