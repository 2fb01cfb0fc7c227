"""The state folder, its disk and its database, where they cannot be used."""

from dataclasses import dataclass

from appliance.domain.errors.unavailable import Unavailable
from appliance.domain.units import megabytes


@dataclass(kw_only=True, eq=False)
class StorageFull(Unavailable, status=507, title="The disk is full"):
    """The disk has no room for this; waiting alone is of no use."""

    retry_after_s: float | None = None
    free_bytes: int | None = None
    """None: the operating system refused a write, and how much would have been enough is not known."""
    need_bytes: int | None = None
    """What was to be written, at the least."""
    reserve_bytes: int | None = None
    """What has to stay free of the disk."""

    def message(self) -> str:
        advice = "delete models or uploads, or free space on the disk of the state folder, and try again"
        if self.free_bytes is None or self.need_bytes is None or self.reserve_bytes is None:
            return f"the disk of the box is full; {advice}"
        return (
            f"the disk of the box has too little room: {megabytes(self.free_bytes)} are free, of which "
            f"{megabytes(self.reserve_bytes)} must stay free, and this needs {megabytes(self.need_bytes)}; {advice}"
        )


class StorageBusy(Unavailable, title="The database is held by another program"):
    """Another program holds the database for longer than the box waits."""

    def message(self) -> str:
        return "another program holds the box's database; end it, or try again"


@dataclass(kw_only=True, eq=False)
class StorageFailed(Unavailable, title="The state folder cannot be used"):
    """The state folder or its database cannot be used as it is; waiting is of no use."""

    retry_after_s: float | None = None
    reason: str

    def message(self) -> str:
        return (
            f"the box's state folder cannot be used ({self.reason}); see that the box may write to it and that its "
            f"disk is sound, or restore a backup into a new folder with 'appliance restore'"
        )
