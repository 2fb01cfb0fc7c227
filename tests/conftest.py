"""What every test shares: lanes, checks for leaks and skips, and the fixtures that stand for resources.

Fakes live in `tests/fakes`, the rules in `tests/harness`; `tests/README.md` says how the tests are built.
"""

import ctypes
import signal
from collections.abc import Generator

import pytest

from tests.harness.lanes import ResourceGuard, add_options, order, register_examples, select
from tests.harness.leaks import LeakGuard
from tests.harness.skips import SkipWatch, quarantined
from tests.harness.tasks import TaskGuard

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts something in the background has it ignore Ctrl-C, and so would every program of a test.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_leaks = LeakGuard()
_resources = ResourceGuard()
_skips = SkipWatch()
_tasks = TaskGuard()
_LIBM = ctypes.CDLL(None)
_FLOATING_POINT = ctypes.create_string_buffer(64)
_LIBM.fegetenv(_FLOATING_POINT)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """`@pytest.mark.anyio` runs on asyncio, as the program does."""
    return "asyncio"


@pytest.fixture(scope="session")
def processes() -> None:
    """Stands for other programs and child processes of this one."""


@pytest.fixture(scope="session")
def ports() -> None:
    """Stands for TCP ports of this machine."""


@pytest.fixture(scope="session")
def package_index() -> None:
    """Stands for a package registry, or files that were fetched from one before."""


@pytest.fixture(scope="session")
def quiet_machine() -> None:
    """Stands for a machine that does nothing else: such tests run alone, after all others of the nightly lane."""


@pytest.fixture(autouse=True)
def _floating_point() -> None:
    """ONNX Runtime makes subnormal numbers zero for the thread that makes its first session: here the one of all tests.
    Hypothesis draws such numbers, and refuses then.
    """
    _LIBM.fesetenv(_FLOATING_POINT)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    register_examples(config)
    _leaks.install()
    _tasks.install()


def pytest_unconfigure() -> None:
    _tasks.uninstall()
    _leaks.uninstall()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons = quarantined()
    for item in items:
        if reason := reasons.get(item.nodeid):
            item.add_marker(pytest.mark.nightly(reason))
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
    select(config, items)
    order(items)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    with _leaks.shared_by(fixturedef):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    _leaks.begin()
    _tasks.begin()
    _resources.begin(item)
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        yield
    finally:
        _resources.check()
        _tasks.check()
        _leaks.check(item)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _skips.see(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _skips.see(report)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skips.unexpected and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skips.unexpected:
        terminalreporter.section("skips that tests/skips_allowed.txt does not list")
        for line in sorted(set(_skips.unexpected)):
            terminalreporter.line(line)
