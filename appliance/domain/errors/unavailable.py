"""What the box cannot do now, through no fault of the caller."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError

UPLOAD_AGAIN = "upload the same model again under the same name: its applications and their settings stay"
"""What to do about a damaged file; stands in the `reason` of variants that lost theirs."""


@dataclass(kw_only=True, eq=False)
class Unavailable(ApplianceError, status=503, title="Not possible now"):
    """The box cannot do this now, and it is not the caller's fault.

    `retry_after_s` None: to try again later is of no use, or nobody can say when.
    """

    retry_after_s: float | None = 1.0

    def message(self) -> str:
        return "the box cannot do this now; try again"


class Busy(Unavailable, title="The box is busy"):
    """The bodies of the requests under way fill the memory that is set aside for them."""

    def message(self) -> str:
        return "the box is handling as many requests as it can hold; try again"


@dataclass(kw_only=True, eq=False)
class ResultNotKept(Unavailable, title="No room to keep the result"):
    """A result that was to be fetched later found no room among those that are kept."""

    retry_after_s: float | None = None
    need_bytes: int
    limit_bytes: int
    """Of all results together."""

    def message(self) -> str:
        return (
            f"the result takes {self.need_bytes} bytes, and finds no room among the results that are kept "
            f"({self.limit_bytes} bytes in all); fetch results as soon as they are there, or wait for the answer "
            "(wait=true)"
        )


@dataclass(kw_only=True, eq=False)
class LoadFailed(Unavailable, title="The model could not be loaded"):
    build_id: str
    reason: str

    def message(self) -> str:
        return f"the variant could not be loaded: {self.reason}"


@dataclass(kw_only=True, eq=False)
class ContentDamaged(LoadFailed, title="A file of the model is damaged"):
    """A file of the variant is missing or not what it was, and nothing else can serve in its place. Waiting is of no
    use. `build_id` is the content's digest, or the variant's id.
    """

    retry_after_s: float | None = None

    def message(self) -> str:
        return super().message() + ("" if UPLOAD_AGAIN in self.reason else f"; {UPLOAD_AGAIN}")


@dataclass(kw_only=True, eq=False)
class ProcessorLost(Unavailable, title="A processor is lost"):
    processor: str

    def message(self) -> str:
        return f"processor {self.processor!r} is lost"


@dataclass(kw_only=True, eq=False)
class VariantQuarantined(Unavailable, title="The variant is quarantined"):
    """It crashed again and again, and is not run until its owner releases it.

    That is `POST /v1/models/{model}/variants/{variant}/release`; the model's other variants serve on.
    """

    retry_after_s: float | None = None
    name: str
    reason: str

    def message(self) -> str:
        return (
            f"variant {self.name!r} is quarantined: {self.reason}; release it (POST "
            f"/v1/models/MODEL/variants/{self.name}/release), or name another variant"
        )


class OutOfFiles(Unavailable, title="Too many files are open"):
    """The process, or the machine, has as many files and connections open as it may."""

    def message(self) -> str:
        return (
            "the box has as many files and connections open as it may, and this needs another one; try again, close "
            "connections, or raise its limit (LimitNOFILE of the service, `ulimit -n`)"
        )


class ProcessorEmulated(Unavailable, title="Imports are refused"):
    """Imports are refused: nothing can be measured on a processor that is not there."""

    retry_after_s: float | None = None

    def message(self) -> str:
        return (
            "this box runs on an emulated processor, on which nothing can be measured, so it imports nothing; import "
            "on a box with a real one"
        )


@dataclass(kw_only=True, eq=False)
class NotConfined(Unavailable, title="Imports are refused"):
    """Imports are refused: their processes would not be confined as the settings require."""

    retry_after_s: float | None = None
    missing: str

    def message(self) -> str:
        return (
            f"imports are refused because this machine lacks {self.missing}; have it provided, or set imports.confine "
            "to 'auto' to import without"
        )


class ShuttingDown(Unavailable, title="The box is shutting down"):
    def message(self) -> str:
        return "the box is shutting down"
