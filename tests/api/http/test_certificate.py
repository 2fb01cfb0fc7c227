"""The certificate that a box makes for itself."""

import ipaddress
import socket
from pathlib import Path

import psutil
import pytest
from cryptography import x509

from appliance.api.http.certificate import self_signed


def names(certificate: Path) -> set[str]:
    found = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions
    return {str(name.value) for name in found.get_extension_for_class(x509.SubjectAlternativeName).value}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_box_on_every_interface_has_all_addresses(host: str, tmp_path: Path) -> None:
    """And not the word for all of them, under which nobody calls it."""
    certified = names(self_signed(tmp_path, host)[0])
    families = (socket.AF_INET, socket.AF_INET6)
    known = [each for some in psutil.net_if_addrs().values() for each in some if each.family in families]
    addresses = {str(ipaddress.ip_address(each.address.partition("%")[0])) for each in known}
    assert addresses | {"127.0.0.1", "::1", "localhost"} <= certified
    assert host not in certified


def test_a_name_of_its_own_is_kept(tmp_path: Path) -> None:
    """Also by the next start: who has pinned the certificate goes on."""
    made = self_signed(tmp_path, "box.local")
    assert "box.local" in names(made[0])
    before = made[0].read_bytes()
    assert self_signed(tmp_path, "box.local")[0].read_bytes() == before
