"""An application's group as a ladder: which variants will do, the most accurate first, and which one is resident."""

from operator import attrgetter

from appliance.policies.residency.base import ApplicationState, Option

_name, _bytes, _accuracy = attrgetter("name"), attrgetter("bytes"), attrgetter("accuracy")


def _descending(options: tuple[Option, ...]) -> list[Option]:
    """Most accurate first; of equally accurate ones the smaller first, then by name."""
    ranked = sorted(options, key=_name)
    ranked.sort(key=_bytes)
    ranked.sort(key=_accuracy, reverse=True)
    return ranked


def ladder(application: ApplicationState) -> list[Option]:
    """The variants that will do, most accurate first; all of them where none reaches `accuracy_min`. Never empty."""
    ranked = _descending(application.options)
    least = application.accuracy_min
    if ranked[-1].accuracy >= least or ranked[0].accuracy < least:
        return ranked
    return [option for option in ranked if option.accuracy >= least]


def best(application: ApplicationState) -> Option:
    """The most accurate variant."""
    found = application.options[0]
    for option in application.options[1:]:  # a loop: this is asked for every application of every decision
        if option.accuracy > found.accuracy or (
            option.accuracy == found.accuracy and (option.bytes, option.name) < (found.bytes, found.name)
        ):
            found = option
    return found


def floor(application: ApplicationState) -> Option:
    """The smallest variant that will do: what a minimalist is replaced by."""
    options, least = application.options, application.accuracy_min
    if least > 0:
        options = tuple(o for o in options if o.accuracy >= least) or options
    found = options[0]
    for option in options[1:]:
        if option.bytes < found.bytes or (
            option.bytes == found.bytes and (-option.accuracy, option.name) < (-found.accuracy, found.name)
        ):
            found = option
    return found


def variant(application: ApplicationState, name: str) -> Option:
    """The option called `name`. Raises: KeyError."""
    for option in application.options:
        if option.name == name:
            return option
    raise KeyError(name)


def resident(application: ApplicationState) -> Option | None:
    """The option that is in memory."""
    return None if application.resident is None else variant(application, application.resident)
