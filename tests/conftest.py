"""What every test shares: lanes, checks for leaks and skips, and the fixtures that stand for resources.

Fakes live in `tests/fakes`, the rules in `tests/harness`; `tests/README.md` says how the tests are built.
"""

import asyncio
import ctypes
import fcntl
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.ids import readable
from tests.harness.lanes import add_options, register_examples
from tests.harness.plugin import Harness

if TYPE_CHECKING:
    from appliance.demo.zoo import toys

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts something in the background has it ignore Ctrl-C, and so would every program of a test.
    signal.signal(signal.SIGINT, signal.default_int_handler)

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


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> "toys.Digits":
    """The model that is really trained."""
    from appliance.demo.zoo import toys

    return toys.digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def furnished(
    tmp_path_factory: pytest.TempPathFactory, digits: "toys.Digits", processes: None
) -> tuple[Path, dict[str, str]]:
    """A state folder with tenants, keys and models, and the keys; to be copied, not to be used. The first worker that
    needs it makes it for all.
    """
    from appliance import log
    from tests.api.stand import furnish

    log.configure("error", "console")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    state_dir, keys = folder / "furnished", folder / "furnished-keys.json"
    with (folder / "furnished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not keys.exists():
            keys.write_text(json.dumps(asyncio.run(furnish(state_dir, digits))))
    return state_dir, json.loads(keys.read_text())


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
    config.pluginmanager.register(Harness())


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name the cases of a table by what is in them."""
    return readable(val)
