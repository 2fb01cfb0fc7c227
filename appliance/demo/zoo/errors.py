"""What can go wrong while the zoo is fetched; each `str()` is a sentence that says what to do.

A network whose recipe meets one is left out of the zoo; the others go on.
"""


class ZooError(Exception):
    """A file is not the one that the catalogue names, or the cache cannot be written."""


class NotAvailable(ZooError):
    """A package cannot be had on this machine now."""


class RegistryUnreachable(NotAvailable):
    """A registry does not answer, or the line broke; its other packages need not be asked for."""
