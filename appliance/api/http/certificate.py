"""Certificates for a box that nobody gave one: an authority of its own, and what that signs for the names and addresses
of the machine as they are now.

Whoever trusts the authority goes on when the certificate is renewed. It can sign for the box's own names and for
addresses, and for nothing else: on a phone that trusts it, it opens no other site.
"""

import datetime
import ipaddress
import os
import socket
from collections.abc import Collection
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from appliance.clock import EPOCH

CERTIFICATE, KEY = "cert.pem", "key.pem"
"""What the box shows, with its authority behind it; its key."""
AUTHORITY, AUTHORITY_KEY = "authority.pem", "authority.key"
_VALID = datetime.timedelta(days=397)
_RENEWED_BEFORE = datetime.timedelta(days=60)
_AUTHORITY_VALID = datetime.timedelta(days=3650)
_CLOCKS_DIFFER = datetime.timedelta(hours=1)
_ANY = ("0.0.0.0", "::")
_COMMON_NAME_MAX = 64
_IF_INET6 = Path("/proc/net/if_inet6")
_IFA_F_TEMPORARY = 0x01


def names_of(host: str, names: Collection[str]) -> frozenset[str]:
    """Names and addresses under which the box is asked that listens at `host`: on every interface all addresses of the
    machine, as they are now.
    """
    known = {name for name in names if name.isascii()} | {"localhost", "127.0.0.1", "::1"}
    return frozenset((known | (_addresses() if host in _ANY else {host})) - set(_ANY))


def ensure(folder: Path, names: Collection[str], now: datetime.datetime) -> bool:
    """Have a certificate and its key in `folder` that is good for `names`; whether one was made. Blocks.

    By a clock that was never set nothing takes the place of what a right one has made.
    Raises: OSError where files cannot be read or written; what is there stays.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key, authority_key = _key_in(folder / KEY), _key_in(folder / AUTHORITY_KEY)
    wanted = set(map(_general, names))
    dns = [one for one in wanted if isinstance(one, x509.DNSName)]
    authority, made = _read(folder / AUTHORITY), _read(folder / CERTIFICATE)
    if authority is not None and made is not None and now < EPOCH and now < made.not_valid_before_utc:
        return False
    if authority is None or not _may_sign(authority, authority_key, dns, now):
        authority = _authority(authority_key, dns, now)
        _write(folder / AUTHORITY, _pem(authority), 0o644)
        made = None  # it stands behind the certificate in its file
    if made is not None and _is_good(made, key, authority, wanted, now):
        return False
    signed = _signed(key, authority, authority_key, wanted, now)
    _write(folder / CERTIFICATE, _pem(signed) + _pem(authority), 0o600)
    return True


def end_of(cert_file: Path) -> datetime.datetime:
    """Until when a certificate is good."""
    return x509.load_pem_x509_certificate(cert_file.read_bytes()).not_valid_after_utc


def _authority(
    key: ec.EllipticCurvePrivateKey, dns: Collection[x509.DNSName], now: datetime.datetime
) -> x509.Certificate:
    every = [x509.IPAddress(ipaddress.ip_network(each)) for each in ("0.0.0.0/0", "::/0")]
    name = _name(f"Edge appliance {socket.gethostname()}")
    return (
        _builder(name, name, key.public_key(), now, _AUTHORITY_VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_others=True), critical=True)
        .add_extension(x509.NameConstraints([*sorted(dns, key=str), *every], None), critical=True)
        .sign(key, hashes.SHA256())
    )


def _signed(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    names: Collection[x509.GeneralName],
    now: datetime.datetime,
) -> x509.Certificate:
    return (
        _builder(_name(socket.gethostname()), authority.subject, key.public_key(), now, _VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_others=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(sorted(names, key=str)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    valid: datetime.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _may_sign(
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    dns: Collection[x509.DNSName],
    now: datetime.datetime,
) -> bool:
    """Whether it is there for as long as what it signs, and for these names."""
    if authority.public_key() != key.public_key():
        return False
    permitted = authority.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or []
    return (
        set(dns) <= set(permitted) and authority.not_valid_before_utc <= now <= authority.not_valid_after_utc - _VALID
    )


def _is_good(
    made: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    names: set[x509.GeneralName],
    now: datetime.datetime,
) -> bool:
    try:
        made.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    certified = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    is_current = made.not_valid_before_utc <= now <= made.not_valid_after_utc - _RENEWED_BEFORE
    return is_current and made.public_key() == key.public_key() and names <= set(certified)


def _usage(*, signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        encipher_only=False,
        decipher_only=False,
    )


def _name(words: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words[:_COMMON_NAME_MAX])])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _addresses() -> set[str]:
    """Of this machine, without those of IPv6 that come and go by themselves: link-local ones, which each container's
    interface has, and temporary ones.
    """
    families = (socket.AF_INET, socket.AF_INET6)
    every = {one.address for each in psutil.net_if_addrs().values() for one in each if one.family in families}
    addresses = {ipaddress.ip_address(one.partition("%")[0]) for one in every}
    temporary = _temporary()
    return {str(one) for one in addresses if one not in temporary and not (one.version == 6 and one.is_link_local)}


def _temporary() -> set[ipaddress.IPv6Address]:
    """Addresses of IPv6 that the system made up for a day (RFC 8981), as Linux lists them."""
    try:
        rows = [line.split() for line in _IF_INET6.read_text().splitlines()]
    except OSError:  # a system without IPv6
        return set()
    return {ipaddress.IPv6Address(bytes.fromhex(row[0])) for row in rows if int(row[4], 16) & _IFA_F_TEMPORARY}


def _read(path: Path) -> x509.Certificate | None:
    """The first one in a file; None where there is none, or it is damaged. Raises: OSError."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _key_in(path: Path) -> ec.EllipticCurvePrivateKey:
    """Made where there is none, or it is damaged: it stays when a certificate is renewed. Raises: OSError."""
    try:
        known = serialization.load_pem_private_key(path.read_bytes(), None)
        if isinstance(known, ec.EllipticCurvePrivateKey):
            return known
    except (FileNotFoundError, ValueError, TypeError):
        pass
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(path, text, 0o600)
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
