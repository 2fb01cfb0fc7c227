"""The certificate that a box makes for itself, and shows anew while it serves."""

import asyncio
import datetime
import errno
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from cryptography import x509

from appliance.api.http import certificate as certificates
from appliance.api.http.certificate import AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY, ensure, names_of
from appliance.api.http.renewal import Renewal
from appliance.clock import SystemClock
from appliance.server import _certificate
from appliance.settings import HttpSettings, Settings

NOW = SystemClock().wall_now()
DAY = datetime.timedelta(days=1)
NAMES = ["localhost", "127.0.0.1"]


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())


def names(folder: Path) -> set[str]:
    found = certificate(folder).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(name.value) for name in found.value}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_certificate_of_a_box_on_every_interface_names_all_addresses(host: str, tmp_path: Path) -> None:
    """And not the wildcard address, under which no client calls the box."""
    ensure(tmp_path, names_of(host, ["box", "box.local", host]), NOW)
    families = (socket.AF_INET, socket.AF_INET6)
    known = [each for some in psutil.net_if_addrs().values() for each in some if each.family in families]
    every = {ipaddress.ip_address(each.address.partition("%")[0]) for each in known}
    addresses = {str(each) for each in every if each.version == 4 or not each.is_link_local}
    assert names(tmp_path) == addresses | {"127.0.0.1", "::1", "localhost", "box", "box.local"}


def test_certificate_is_kept_while_good_and_renewed_under_its_authority(tmp_path: Path) -> None:
    """A new address and the last two months of the certificate each make a new certificate, of the same authority and
    key; a name that the authority was not made for makes a new authority.
    """
    assert ensure(tmp_path, NAMES, NOW)
    authority, key = (tmp_path / AUTHORITY).read_bytes(), (tmp_path / KEY).read_bytes()
    assert not ensure(tmp_path, NAMES, NOW + 300 * DAY)
    assert not ensure(tmp_path, NAMES[:1], NOW)  # an address that has gone
    assert ensure(tmp_path, [*NAMES, "192.0.2.7"], NOW)
    assert "192.0.2.7" in names(tmp_path)
    assert ensure(tmp_path, NAMES, NOW + 350 * DAY)
    assert ((tmp_path / AUTHORITY).read_bytes(), (tmp_path / KEY).read_bytes()) == (authority, key)
    assert ensure(tmp_path, [*NAMES, "box.example.org"], NOW)  # which the authority was not made for
    assert (tmp_path / AUTHORITY).read_bytes() != authority


def test_expired_or_damaged_certificate_files_are_made_anew(tmp_path: Path) -> None:
    """A certificate of a clock that was not set, a damaged key, and a missing authority."""
    ensure(tmp_path, NAMES, datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC))
    assert ensure(tmp_path, NAMES, NOW)
    (tmp_path / KEY).write_text("damaged")
    assert ensure(tmp_path, NAMES, NOW)
    (tmp_path / AUTHORITY).unlink()
    assert ensure(tmp_path, NAMES, NOW)
    assert not ensure(tmp_path, NAMES, NOW)


def test_temporary_addresses_are_not_named_in_the_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of a container's interface and those that the system made up for a day."""
    stable, temporary = "2001:db8::1", "2001:db8::1234:5678:9abc:def0"
    mine = [SimpleNamespace(family=socket.AF_INET6, address=each) for each in ("fe80::1%veth7", stable, temporary)]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": mine})
    listed = tmp_path / "if_inet6"
    listed.write_text(
        f"{ipaddress.IPv6Address(stable).packed.hex()} 02 40 00 80 eth0\n"
        f"{ipaddress.IPv6Address(temporary).packed.hex()} 02 40 00 01 eth0\n"
    )
    monkeypatch.setattr("appliance.api.http.certificate._IF_INET6", listed)
    assert names_of("::", []) == {"localhost", "127.0.0.1", "::1", stable}


def test_certificate_is_kept_while_the_clock_is_not_set(tmp_path: Path) -> None:
    """Also where a new name is asked for: what was made with the right time stays."""
    ensure(tmp_path, NAMES, NOW)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert not ensure(tmp_path, [*NAMES, "192.0.2.7"], datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    assert ensure(tmp_path, [*NAMES, "192.0.2.7"], NOW)
    assert (tmp_path / AUTHORITY).read_bytes() == kept[AUTHORITY]


@pytest.mark.parametrize("name", [AUTHORITY_KEY, AUTHORITY, KEY])
def test_unreadable_certificate_files_make_no_new_authority(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authority that phones trust is still there when the disk is; until then an error is raised."""
    ensure(tmp_path, NAMES, NOW)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    read = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == name:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", failing)
        with pytest.raises(OSError, match="Input/output"):
            ensure(tmp_path, NAMES, NOW)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_box_with_full_disk_starts_with_its_old_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the machine has a new address; a box without a certificate does not start and says why."""
    settings = Settings(state_dir=tmp_path, http=HttpSettings(tls_self_signed=True))
    folder = tmp_path / "tls"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(certificates, "_write", full)
        with pytest.raises(OSError, match="No space"):
            _certificate(settings, SystemClock())
    ensure(folder, NAMES[:1], NOW)
    monkeypatch.setattr(certificates, "_write", full)
    cert, key, renew = _certificate(settings, SystemClock())
    assert (cert, key) == (folder / CERTIFICATE, folder / KEY)
    assert renew is not None
    with pytest.raises(OSError, match="No space"):
        renew()


@asynccontextmanager
async def served(context: ssl.SSLContext) -> AsyncIterator[int]:
    """A server that sends back what it gets; its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
        server.close()


def shown(writer: asyncio.StreamWriter) -> x509.Certificate:
    return x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))


@pytest.mark.usefixtures("ports")
@pytest.mark.anyio
async def test_renewed_certificate_is_shown_to_new_connections(tmp_path: Path) -> None:
    """Under the authority that was trusted before; open connections go on."""
    ensure(tmp_path, NAMES, NOW)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / CERTIFICATE, tmp_path / KEY)
    trusting = ssl.create_default_context(cafile=str(tmp_path / AUTHORITY))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    wanted = list(NAMES)
    renewal = Renewal(context, tmp_path / CERTIFICATE, tmp_path / KEY, lambda: ensure(tmp_path, wanted, NOW))
    async with served(context) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        first = shown(writer)
        await renewal.look()
        _, unchanged = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        assert shown(unchanged) == first
        wanted.append("192.0.2.7")
        await renewal.look()
        _, later = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
        assert shown(later) == certificate(tmp_path) != first
        writer.write(b"still here")
        assert await reader.read(100) == b"still here"

        kept = (tmp_path / KEY).read_bytes()
        (tmp_path / KEY).write_text("half a pair")
        renewal = Renewal(context, tmp_path / CERTIFICATE, tmp_path / KEY, None)
        (tmp_path / CERTIFICATE).touch()
        await renewal.look()
        _, last = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        assert shown(last) == certificate(tmp_path)
        (tmp_path / KEY).write_bytes(kept)
        for each in (writer, unchanged, later, last):
            each.close()
