"""The state folder, its disk and its database, where they cannot be used."""

from dataclasses import dataclass

from appliance.domain.errors.unavailable import Unavailable


class StorageFull(Unavailable):
    def message(self) -> str:
        return "the disk of the box is full; free space in the state folder and try again"


class StorageBusy(Unavailable):
    """Another program holds the database for longer than the box waits."""

    def message(self) -> str:
        return "another program holds the box's database; end it, or try again"


@dataclass(kw_only=True, eq=False)
class StorageFailed(Unavailable):
    """The state folder or its database cannot be used as it is; waiting is of no use."""

    retry_after_s: float | None = None
    reason: str

    def message(self) -> str:
        return (
            f"the box's state folder cannot be used ({self.reason}); see that the box may write to it and that its "
            f"disk is sound, or restore a backup into a new folder with 'appliance restore'"
        )
