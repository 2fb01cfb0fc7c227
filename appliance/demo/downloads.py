"""A zoo on this machine: fetched with progress bars, and a smaller one when a registry is out of reach."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from appliance.demo.zoo import Progress, Zoo, ZooName, fetch
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed
from appliance.terminal.progress import Step
from appliance.terminal.progress import progress as bar

SMALLER: Mapping[ZooName, ZooName] = {"demo": "small", "small": "ci"}
"""What is tried when nothing of a zoo can be had."""


def fetched(name: ZooName, cache: Path) -> Zoo:
    """The zoo from the cache, fetched where needed, with bars on standard error."""
    with _bars() as progress:
        return fetch(name, cache, progress)


def fetched_or_smaller(name: ZooName, cache: Path) -> Zoo:
    """The zoo, or as much of it as can be had; says what is missing.

    Raises: CommandFailed when not even the smallest zoo can be made.
    """
    zoo = fetched(name, cache)
    for sentence in zoo.missing:
        screen.say(f"  without: {sentence}")
    if zoo.models:
        return zoo
    if name not in SMALLER:
        raise CommandFailed("no model of the zoo could be fetched or made; check the connection and run it again")
    screen.say(f"Nothing of the zoo {name!r} can be had now; trying the smaller zoo {SMALLER[name]!r}.")
    return fetched_or_smaller(SMALLER[name], cache)


@contextmanager
def _bars() -> Iterator[Progress]:
    """Show each thing under way; without a terminal by a line when it begins."""
    with ExitStack() as shown:
        bars: dict[str, Step] = {}

        def step(what: str, done: int, total: int | None) -> None:
            if what not in bars:
                shown.close()  # one thing at a time: it ends when the next begins
                bars[what] = shown.enter_context(bar(f"  {what}", of_bytes=total is not None))
            bars[what](done, total, screen.size(total) if total else "…")

        yield step
