"""The rules of `tests/harness` as one plugin of pytest, which `tests/conftest.py` registers.

A plugin and not hooks of the `conftest.py`: those are not called for fixtures of a whole session.
"""

import gc
from collections.abc import Generator

import pytest

from tests.harness.lanes import ResourceGuard, order, select
from tests.harness.leaks import LeakGuard
from tests.harness.skips import SkipWatch, quarantined
from tests.harness.tasks import TaskGuard


class Harness:
    """Chooses and orders the tests; fails those that leave something open or use what their lane does not allow."""

    def __init__(self) -> None:
        self._leaks = LeakGuard()
        self._resources = ResourceGuard()
        self._skips = SkipWatch()
        self._tasks = TaskGuard()
        self._leaks.install()
        self._resources.install()
        self._tasks.install()

    def pytest_collection_finish(self) -> None:
        """Leave what was collected out of every collection of garbage to come: it stays to the end."""
        gc.collect()
        gc.freeze()

    def pytest_unconfigure(self) -> None:
        self._tasks.uninstall()
        self._resources.uninstall()
        self._leaks.uninstall()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        reasons = quarantined()
        for item in items:
            if reason := reasons.get(item.nodeid):
                item.add_marker(pytest.mark.nightly(reason), append=False)
                item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
        select(config, items)
        order(items)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        with self._leaks.shared_by(fixturedef):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        self._leaks.begin()
        self._tasks.begin()
        self._resources.begin(item)
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        try:
            yield
        finally:
            self._resources.check()
            self._tasks.check()
            self._leaks.check(item)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._skips.see(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._skips.see(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skips.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._skips.unexpected:
            terminalreporter.section("skips that tests/skips_allowed.txt does not list")
            for line in sorted(set(self._skips.unexpected)):
                terminalreporter.line(line)
