"""Lanes: which tests run when.

A test's lane follows from the fixtures that it asks for, directly or through others: `RESOURCES` gives each resource's
lane, and a test runs in the latest of them. Two marks overrule that, and each says why: `nightly("…")` and `gate("…")`
put a test, or as `pytestmark` a file, into that lane. Of several the one closest to the test counts.

A test of the fast lane that starts a process or opens a port fails, so no test is in it by mistake.
"""

import enum
import functools
import os
import socket
import subprocess
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import hypothesis
import pytest


class Lane(enum.IntEnum):
    """Each lane and what `scripts/test` runs with it."""

    FAST = 0
    """No process, no port, no network: `scripts/test fast`."""
    GATE = 1
    """What must hold before a commit lands, with the fast lane: `scripts/test`."""
    NIGHTLY = 2
    """All the rest, and the properties with random examples: `scripts/test nightly`."""


RESOURCES = {
    "processes": Lane.GATE,
    "ports": Lane.GATE,
    "chromium": Lane.NIGHTLY,
    "package_index": Lane.NIGHTLY,
    "quiet_machine": Lane.NIGHTLY,
}
"""Lane of each resource, by the name of the fixture that stands for the resource (`tests/conftest.py`)."""

_WAITS = {"processes": 1, "ports": 2, "chromium": 3, "package_index": 3}
"""How long tests that use a resource take, from the shortest to the longest."""

_USES: tuple[tuple[str, Any, str], ...] = (
    ("processes", subprocess.Popen, "__init__"),
    *(("processes", os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp")),
    *(("ports", socket.socket, name) for name in ("bind", "connect", "connect_ex")),
)
"""Functions that use a resource: its name, the module or class, the function."""


def fixtures_of(item: pytest.Item) -> Collection[str]:
    """Return the names of the fixtures that a test asks for, directly or through others."""
    return getattr(item, "fixturenames", ())


def lane_of(item: pytest.Item) -> Lane:
    """Return the lane of a collected test."""
    for mark in item.iter_markers():  # the closest one first
        if mark.name in ("gate", "nightly"):
            return Lane[mark.name.upper()]
    return max((RESOURCES[name] for name in fixtures_of(item) if name in RESOURCES), default=Lane.FAST)


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane",
        choices=["fast", "gate", "nightly", "all"],
        help="tests of one lane; without it the gate, or all lanes where files or tests are named",
    )
    parser.addoption(
        "--quiet-machine",
        choices=["yes", "no", "only"],
        default="yes",
        help="whether tests that need a machine that does nothing else run: with the others, not, or only these",
    )


def register_examples(config: pytest.Config) -> None:
    """Choose how properties draw examples: the same each time, or (nightly) new and many.

    No example has a deadline: the machine that runs the tests is small and shared.
    """
    hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=40, database=None)
    hypothesis.settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=400)
    hypothesis.settings.load_profile("nightly" if config.getoption("--lane") == "nightly" else "gate")


def examples(gate: int) -> hypothesis.settings:
    """Return settings for a property whose examples are slow, or few enough to be worth naming: `gate` examples in the
    gate, ten times as many in the nightly lane.
    """
    is_nightly = hypothesis.settings.get_current_profile_name() == "nightly"
    return hypothesis.settings(max_examples=gate * (10 if is_nightly else 1))


def seeds(gate: int, nightly: int) -> list[Any]:
    """Return values of a parameter `seed`: the first `gate` run in the gate, the others up to `nightly` in the nightly
    lane.
    """
    more = pytest.mark.nightly("the same with more seeds")
    return [pytest.param(seed, marks=() if seed < gate else more) for seed in range(nightly)]


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the wanted lane."""
    wanted = config.getoption("--lane") or ("all" if _names_tests(config) else "gate")
    quiet = config.getoption("--quiet-machine")
    chosen: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        needs_quiet = "quiet_machine" in fixtures_of(item)
        is_chosen = _runs_in(item, wanted) and quiet in ("yes", "only" if needs_quiet else "no")
        (chosen if is_chosen else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = chosen


def order(items: list[pytest.Item]) -> None:
    """Put files with servers first and fast ones last, so that no processor waits for a long file at the end."""
    slowness: dict[Path, int] = defaultdict(int)
    for item in items:
        waits = [_WAITS.get(name, 0) for name in fixtures_of(item)]
        slowness[item.path] = max(slowness[item.path], *waits, 0)
    items.sort(key=lambda item: -slowness[item.path])


def _runs_in(item: pytest.Item, wanted: str) -> bool:
    if wanted == "all":
        return True
    lane = lane_of(item)
    if wanted == "nightly":
        return lane is Lane.NIGHTLY or hypothesis.is_hypothesis_test(getattr(item, "obj", None))
    return lane <= Lane[wanted.upper()]


def _names_tests(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.ARGS


class ResourceGuard:
    """Notices processes and ports that a test of the fast lane uses.

    It wraps the functions that use them. An audit hook of the interpreter is shorter, but Python 3.11 lets another
    thread run while it audits `sys.settrace`, and that thread dies when it wants to be traced as well: under coverage a
    box then waits for ever for a thread of its pool.
    """

    def __init__(self) -> None:
        self._used: list[str] | None = None
        self._originals: list[tuple[Any, str, Any]] = []

    def install(self) -> None:
        """Watch from now on."""
        for resource, owner, name in _USES:
            self._originals.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, self._watched(resource, name, getattr(owner, name)))

    def uninstall(self) -> None:
        """Leave everything as it was."""
        for owner, name, original in self._originals:
            if original is None:
                delattr(owner, name)  # it is inherited
            else:
                setattr(owner, name, original)

    def begin(self, item: pytest.Item) -> None:
        """Watch a test from its set-up on, if it is one of the fast lane."""
        self._used = [] if lane_of(item) is Lane.FAST else None

    def check(self) -> None:
        """Fail the test if it used what its lane does not allow."""
        used, self._used = self._used, None
        if used:
            pytest.fail(f"a test of the fast lane must ask for the fixture `{used[0]}`: {used[1]}", pytrace=False)

    def _watched(self, resource: str, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def watched(*arguments: Any, **options: Any) -> Any:
            if self._used is not None and (resource != "ports" or isinstance(arguments[-1], tuple)):
                self._used += [resource, f"{name} {arguments[-1] if arguments else options}"]
            return original(*arguments, **options)

        return watched
