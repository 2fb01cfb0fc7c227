"""Which addresses a notification may be sent to."""

from ipaddress import ip_network

import pytest

from appliance.domain.notifications.networks import is_permitted

PRIVATE = [ip_network(one) for one in ("192.168.7.0/24", "fd00:7::/32")]


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.0.0.1",
        "127.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.0.1",
        "192.168.1.1",
        "198.18.0.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001:db8::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2002:7f00:1::1",
        "2002:808:808::1",
        "2002:c0a8:101::1",
        "fc00::1",
        "fd00::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_address_that_is_not_of_the_internet_is_not_permitted(address: str) -> None:
    """Whatever form it is written in."""
    assert not is_permitted(address, [])
    assert not is_permitted(address, PRIVATE)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
def test_address_of_the_internet_is_permitted(address: str) -> None:
    assert is_permitted(address, [])


@pytest.mark.parametrize("address", ["192.168.7.9", "::ffff:192.168.7.9", "fd00:7::9", "fd00:7::9%eth0"])
def test_address_of_a_network_that_the_operator_permits_is_permitted(address: str) -> None:
    assert is_permitted(address, PRIVATE)
    assert not is_permitted(address, [])
