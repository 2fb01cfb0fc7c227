"""The root of all errors: what each kind means to a caller, a message for a person, and the facts in fields."""

import re
from dataclasses import dataclass

ERRORS: dict[str, type["ApplianceError"]] = {}
"""Every kind of error that leaves the box, by its slug."""


@dataclass(kw_only=True, eq=False)
class ApplianceError(Exception):
    """Root of the tree; `str()` is one sentence for a person that says what to do where something can be done.

    A class names the status of an HTTP answer and its title, `class Busy(Unavailable, title="The box is busy")`, or
    takes those of its parent. Its slug, the last segment of a problem's `type`, is its name: renaming a class changes
    the API. A class outside this package has the slug of its parent, for it does not leave the box.
    """

    slug = "appliance-error"
    status = 500
    title = "The appliance could not do this"

    def __init_subclass__(cls, *, status: int | None = None, title: str | None = None) -> None:
        super().__init_subclass__()
        cls.status, cls.title = status or cls.status, title or cls.title
        if cls.__module__.startswith(f"{__package__}."):
            cls.slug = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
            ERRORS[cls.slug] = cls

    def __str__(self) -> str:
        return self.message()

    def message(self) -> str:
        """The sentence; subclasses fill in their facts."""
        return "the appliance could not do this"

    def answer(self) -> tuple[int, str]:
        """Return status and title: those of the class, unless the cause of this error changes them."""
        return self.status, self.title

    def facts(self) -> dict[str, object]:
        """The fields, for logs and for the problem document."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


ERRORS[ApplianceError.slug] = ApplianceError
