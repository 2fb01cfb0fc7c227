"""Boxes that tell of themselves, each in a network of its own, and who finds them."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.clock import NS_PER_S, SystemClock, pause_s
from appliance.discovery import announcement
from appliance.discovery.announcement import Announcement
from appliance.discovery.finding import FOUND_MAX
from appliance.discovery.service import Service, reachable, read
from tests.discovery.joined_networks import FLOODING, inside, ip, networks_joined
from tests.harness.lacking import lacks_namespaces, lacks_tools, skip_if

ROUNDS, GROWTH_MAX_KB = 60_000, 40_000
"""If it kept what it hears of so many rounds, it would take several times as much."""
PATIENCE_S = 120
CLOCK = SystemClock()
ANNOUNCING = Path(__file__).parent / "announcing.py"


def test_announced_service_is_read_back_from_its_txt_record() -> None:
    """The TXT record has the version and the certificate, and nothing else."""
    service = Service("box", ("192.0.2.7", "2001:db8::7"), 8443, "1.2.3", True, "ab" * 32)
    assert set(service.properties()) == {"version", "tls", "fingerprint"}
    assert read("box._inference._tcp.local.", service.addresses, 8443, dict(service.properties())) == service
    assert service.url == "https://192.0.2.7:8443"
    plain = Service("box", ("2001:db8::7",), 8080, "1.2.3", False, "")
    assert (plain.url, plain.properties()) == ("http://[2001:db8::7]:8080", {"version": "1.2.3", "tls": "0"})


def test_foreign_announcement_is_stripped_and_shortened() -> None:
    """No control characters for a terminal, nothing long."""
    found = read("\x1b[2Jbox._inference._tcp.local.", (), 1, {"version": "9\x07" * 200, "tls": None, "tenants": "all"})
    assert found == Service("[2Jbox", (), 1, "9" * 100, False, "")


def test_box_on_the_loopback_is_not_announced() -> None:
    """No other machine could reach it."""
    assert reachable("127.0.0.1") == reachable("::1") == reachable("localhost") == ()
    assert reachable("192.0.2.7") == ("192.0.2.7",)
    assert all(not address.startswith(("127.", "fe80")) for address in reachable("0.0.0.0"))


@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
async def test_announcement_reads_addresses_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interfaces may go while they are listed."""
    monkeypatch.setattr(announcement, "_LOOK_S", 0.0)
    answers: Iterator[Service | OSError] = iter([OSError(19, "No such device"), Service("box", (), 1, "1", False, "")])
    looked_again = asyncio.Event()
    loop = asyncio.get_running_loop()

    def current() -> Service:
        answer = next(answers, None)
        if isinstance(answer, OSError):
            raise answer
        loop.call_soon_threadsafe(looked_again.set)
        return answer or Service("box", (), 1, "1", False, "")

    telling = Announcement(CLOCK, current)
    telling.begin()
    await asyncio.wait_for(looked_again.wait(), PATIENCE_S)
    await telling.end()


def _lacks_cables() -> str | None:
    order = ["unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
    tried = subprocess.run(order, capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"the kernel joins no networks (veth): {tried.stderr.strip()}"


@pytest.fixture
def networks() -> Iterator[list[str]]:
    skip_if(lacks_namespaces("net"), lacks_tools({"ip": "iproute2"}))
    skip_if(_lacks_cables())
    with networks_joined() as spaces:
        yield spaces


@contextmanager
def announced(space: str, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A box in a namespace."""
    order = inside(space, str(ANNOUNCING), name)
    with subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as box:
        try:
            assert box.stdout is not None
            assert box.stdout.readline() == "told\n"
            yield box
        finally:
            box.kill()


def found(space: str, seconds: float = 1.5) -> dict[str, dict[str, Any]]:
    """By name, as the command prints it."""
    order = inside(space, "-m", "appliance", "find", "--seconds", str(seconds), "--json")
    said = subprocess.run(order, capture_output=True, text=True, check=True).stdout
    return {one["name"]: one for one in json.loads(said)}


def until(holds: Callable[[dict[str, dict[str, Any]]], bool], space: str) -> dict[str, dict[str, Any]]:
    end_ns = CLOCK.now_ns() + PATIENCE_S * NS_PER_S
    while not holds(seen := found(space)):
        assert CLOCK.now_ns() < end_ns, seen
        pause_s(0.1)
    return seen


def resident_kb(pid: int) -> int:
    """Of the process that `ip netns exec` has become."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


@pytest.mark.nightly("networks of several boxes")
@pytest.mark.usefixtures("processes")
def test_boxes_of_one_name_are_found_under_different_names(networks: list[str]) -> None:
    """Each under its own address; a new address is announced, and a box that stops is gone."""
    a, b = networks
    with announced(a, "box") as first:
        until(lambda seen: set(seen) == {"box"}, b)
        with announced(b, "box"):
            seen = until(lambda seen: set(seen) == {"box", "box-2"}, a)
            assert (seen["box"]["addresses"], seen["box-2"]["addresses"]) == (["10.97.0.1"], ["10.97.0.2"])
            assert seen["box"]["url"] == "https://10.97.0.1:8443"
            assert (seen["box"]["version"], seen["box"]["fingerprint"]) == ("1.2.3", "ab" * 32)

            ip("-n", a, "address", "add", "10.97.0.9/24", "dev", "eth0")
            until(  # while it is told anew, a look may miss it
                lambda seen: "box" in seen and sorted(seen["box"]["addresses"]) == ["10.97.0.1", "10.97.0.9"], b
            )

            assert first.stdin is not None
            assert first.stdout is not None
            first.stdin.write("\n")
            first.stdin.flush()
            assert "gone\n" in iter(first.stdout.readline, "")  # after lines of its log
            assert set(found(b)) == {"box-2"}


@pytest.mark.nightly("networks of several boxes")
@pytest.mark.usefixtures("processes")
def test_discovery_survives_a_flood_of_announcements(networks: list[str]) -> None:
    """Malformed announcements, and boxes that there are not: a search ends in time with a bounded list, the box goes
    on, holds no more memory than before, and is found when the flood is over.
    """
    a, b = networks
    with announced(a, "box") as box:
        until(lambda seen: set(seen) == {"box"}, b)
        before_kb = resident_kb(box.pid)
        order = inside(b, str(FLOODING), "10.97.0.2", str(ROUNDS))
        with subprocess.Popen(order, stdout=subprocess.PIPE, text=True) as stranger:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == "begun\n"
            assert len(found(b)) <= FOUND_MAX
            assert stranger.stdout.readline() == "over\n"
        assert box.poll() is None
        assert resident_kb(box.pid) - before_kb < GROWTH_MAX_KB
        until(lambda seen: "box" in seen, b)
