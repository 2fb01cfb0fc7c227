"""A self-signed certificate for a box that nobody gave one: encrypts, and can be pinned by its fingerprint."""

import datetime
import ipaddress
import os
import socket
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from appliance.clock import SystemClock

_VALID = datetime.timedelta(days=825)


def self_signed(folder: Path, host: str) -> tuple[Path, Path]:
    """Certificate and key files in `folder`, made when they are missing or expired."""
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    now = SystemClock().wall_now()
    if cert_file.exists() and key_file.exists() and end_of(cert_file) > now:
        return cert_file, key_file
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, socket.gethostname())])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(private)
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return cert_file, key_file


def end_of(cert_file: Path) -> datetime.datetime:
    """Until when a certificate is good."""
    return x509.load_pem_x509_certificate(cert_file.read_bytes()).not_valid_after_utc


def _names(host: str) -> list[x509.GeneralName]:
    """What the box may be called: on every interface it has all addresses of the machine, as they are now."""
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.DNSName(socket.gethostname())]
    hosts = _addresses() if host in ("0.0.0.0", "::") else [host]
    for address in dict.fromkeys(("127.0.0.1", "::1", *hosts)):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            names.append(x509.DNSName(address))
    return names


def _addresses() -> list[str]:
    """Of this machine, without the zones of link-local ones."""
    families = (socket.AF_INET, socket.AF_INET6)
    found = (one for each in psutil.net_if_addrs().values() for one in each if one.family in families)
    return sorted(one.address.partition("%")[0] for one in found)
