"""Where a build runs: inside the service, or in a guard: a process with the builds of one tenant, which dies alone."""

from collections.abc import Sequence
from enum import StrEnum

REVIEW = 2
"""Of graphs at import; another number when it sees more, so that what an earlier one let pass is reviewed again."""


class Isolation(StrEnum):
    """Which builds run in a guard."""

    AUTO = "auto"
    """Those that the import has not shown to be harmless."""
    PROCESS = "process"
    """All."""
    NONE = "none"
    """None: whoever may upload a model may stop the box."""


def is_guarded(box: Isolation, tenant: Isolation | None, hazards: Sequence[str] | None) -> bool:
    """Whether a build runs in its owner's guard.

    `box` and `tenant`: the setting and the owner's quota, which wins where it is given; `hazards`: what the review at
    import found, empty = harmless, None = never reviewed.
    """
    isolation = box if tenant is None else tenant
    return isolation is Isolation.PROCESS or (isolation is Isolation.AUTO and hazards != ())


def is_trusted(box: Isolation, tenant: Isolation | None) -> bool:
    """Whether the operator trusts whoever uploads a tenant's models; `box` and `tenant` as for `is_guarded`."""
    return (box if tenant is None else tenant) is Isolation.NONE
