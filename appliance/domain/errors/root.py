"""The root of all errors: a message for a person, and the facts in fields."""

from dataclasses import dataclass


@dataclass(kw_only=True, eq=False)
class ApplianceError(Exception):
    """Root of the tree; `str()` is one sentence for a person that says what to do where something can be done."""

    def __str__(self) -> str:
        return self.message()

    def message(self) -> str:
        """The sentence; subclasses fill in their facts."""
        return "the appliance could not do this"

    def facts(self) -> dict[str, object]:
        """The fields, for logs and for the problem document."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
