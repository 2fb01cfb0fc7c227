"""Which box a command talks to: options first, then what the state folder of this machine says."""

from pathlib import Path

from appliance.cli.connection import DEFAULT_URL, Connection, found


def _found(state: Path, url: str | None = None, key: str | None = None, ca: Path | None = None) -> Connection:
    return found(url=url, key=key, state=state, ca=ca, as_json=False)


def test_local_box_is_found_by_its_state_folder(tmp_path: Path) -> None:
    """Address and admin key come from the folder, without the line breaks of the files."""
    (tmp_path / "address").write_text("http://127.0.0.1:43211\n")
    (tmp_path / "admin.key").write_text("ea_secret\n")
    box = _found(tmp_path)
    assert (box.url, box.key) == ("http://127.0.0.1:43211", "ea_secret")


def test_missing_state_folder_gives_default_address_without_key(tmp_path: Path) -> None:
    assert _found(tmp_path / "nowhere") == Connection(DEFAULT_URL, None, None, None, tmp_path / "nowhere")


def test_wildcard_address_becomes_the_loopback_address(tmp_path: Path) -> None:
    """0.0.0.0 and [::] are for listening only."""
    for listening, called in (("http://0.0.0.0:80", "http://127.0.0.1:80"), ("http://[::]:80", "http://[::1]:80")):
        (tmp_path / "address").write_text(listening)
        assert _found(tmp_path).url == called


def test_url_and_key_options_override_the_state_folder(tmp_path: Path) -> None:
    """A closing slash of the URL does not matter."""
    (tmp_path / "address").write_text("http://127.0.0.1:43211")
    (tmp_path / "admin.key").write_text("ea_secret")
    box = _found(tmp_path, url="http://box:8080/", key="ea_mine")
    assert (box.url, box.key) == ("http://box:8080", "ea_mine")


def test_self_signed_certificate_is_trusted_for_the_local_box_only(tmp_path: Path) -> None:
    """The authority of another box must be named."""
    (tmp_path / "address").write_text("https://127.0.0.1:43211")
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "cert.pem").touch()
    assert _found(tmp_path).ca == tmp_path / "tls" / "cert.pem"
    assert _found(tmp_path, url="https://elsewhere:1").ca is None


def test_admin_key_file_is_used_for_the_local_box_only(tmp_path: Path) -> None:
    """The key file of a state folder is no key for a box elsewhere."""
    (tmp_path / "address").write_text("http://127.0.0.1:43211")
    (tmp_path / "admin.key").write_text("ea_secret")
    for other in ("http://elsewhere:8080", "http://127.0.0.1.elsewhere:8080", "http://localhost@elsewhere:8080"):
        assert _found(tmp_path, url=other).key is None
    assert _found(tmp_path, url="http://127.0.0.1:43211").key == "ea_secret"
    assert _found(tmp_path, url="http://localhost:9").key == "ea_secret"
