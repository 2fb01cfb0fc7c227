"""What systemd is told, at a real socket, and by a real box."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from appliance.systemd import Systemd


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Where systemd would wait."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.settimeout(240)
        yield line


def told(manager: socket.socket) -> dict[str, str]:
    """The next message."""
    return dict(word.split("=", 1) for word in manager.recv(4096).decode().splitlines())


def test_systemd_messages_are_those_of_sd_notify(manager: socket.socket) -> None:
    """A sign of life comes three times in the time of the watchdog, however often it is offered."""
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "3000000", "OTHER": "stays"}
    systemd = Systemd.of(environment)
    assert environment == {"OTHER": "stays"}
    systemd.extend(600, "migrating")
    assert told(manager) == {"EXTEND_TIMEOUT_USEC": "600000000", "STATUS": "migrating"}
    systemd.ready("listens")
    assert told(manager) == {"READY": "1", "STATUS": "listens"}
    for now_ns in range(0, 2 * 10**9, 10**8):
        systemd.alive(now_ns)
    systemd.stopping()
    assert [told(manager) for _ in range(2)] == 2 * [{"WATCHDOG": "1"}]
    assert told(manager)["STOPPING"] == "1"


def test_systemd_messages_reach_an_abstract_socket() -> None:
    """The name begins with @ in the environment, and with a zero in the kernel."""
    name = f"appliance-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(f"\0{name}")
        line.settimeout(240)
        Systemd.of({"NOTIFY_SOCKET": f"@{name}"}).ready("listens")
        assert told(line)["READY"] == "1"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": "/there/is/nobody", "WATCHDOG_USEC": "1"},
        {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "1"},
        {"WATCHDOG_USEC": "nonsense"},
    ],
)
def test_systemd_messages_without_a_manager_do_not_fail(environment: dict[str, str]) -> None:
    systemd = Systemd.of(environment)
    systemd.ready("listens")
    systemd.alive(1)


def test_systemd_watchdog_of_another_process_is_not_fed(manager: socket.socket) -> None:
    """A child that was started with the service's environment feeds no watchdog."""
    systemd = Systemd.of({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "3", "WATCHDOG_PID": "1"})
    systemd.alive(1)
    systemd.stopping()
    assert "STOPPING" in told(manager)


@pytest.mark.usefixtures("processes")
def test_box_reports_start_watchdog_and_stop_to_systemd(manager: socket.socket, tmp_path: Path) -> None:
    """Also that a new state folder takes its time."""
    order = [sys.executable, "-m", "appliance", "serve", "--state", str(tmp_path / "state"), "--port", "0"]
    environment = {**os.environ, "NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "600000"}
    with subprocess.Popen(order, env=environment, stdout=subprocess.PIPE) as box:
        assert "EXTEND_TIMEOUT_USEC" in told(manager)
        words = told(manager)
        while "READY" not in words:
            words = told(manager)
        assert "listens at http://" in words["STATUS"]
        assert [told(manager) for _ in range(3)] == 3 * [{"WATCHDOG": "1"}]
        box.send_signal(signal.SIGSTOP)
        manager.settimeout(1)
        with suppress(TimeoutError):
            for _ in range(10):  # what was on its way
                told(manager)
            pytest.fail("a box that stands still gives no sign of life")
        box.send_signal(signal.SIGCONT)
        manager.settimeout(240)
        box.send_signal(signal.SIGTERM)
        while "STOPPING" not in told(manager):
            pass
        assert box.wait(timeout=240) == 0
