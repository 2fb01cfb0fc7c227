"""`appliance serve`: one box in this process, until SIGTERM or Ctrl-C."""

import errno
import gc
import os
import socket
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed, SettingsUnfit


def serve(
    state: Annotated[
        Path | None, typer.Option(help="Folder of the database, models and keys; made when missing.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 0.0.0.0 opens the box to the network.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0 takes a free one.", min=0, max=65535)] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with settings; options and APPLIANCE_… variables win over it.", exists=True, dir_okay=False
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM certificate for HTTPS; with --tls-key.", exists=True)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM private key of --tls-cert.", exists=True)] = None,
    tls_self_signed: Annotated[
        bool | None, typer.Option("--tls-self-signed", help="HTTPS with a certificate made in STATE/tls.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Run a box until SIGTERM or Ctrl-C.

    The first start leaves the admin key in STATE/admin.key (only its owner can read it); the address stands in
    STATE/address. Listens on this machine only, unless --host says otherwise. Settings: docs/operations.md.

    [dim]$[/dim] appliance serve --state /var/lib/appliance --port 8080
    [dim]$[/dim] appliance serve --state ./state --host 0.0.0.0 --tls-self-signed
    [dim]$[/dim] curl http://127.0.0.1:8080/v2/health/ready
    """
    if config is not None:
        os.environ["APPLIANCE_CONFIG"] = str(config)
    http = {
        "host": host,
        "port": port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_self_signed": tls_self_signed,
    }
    settings = _settings({"state_dir": state, "http": _given(http), "log": _given({"level": log_level})})

    _require_free(settings.http.host, settings.http.port)
    _require_folder(settings.state_dir)

    gc.disable()  # until the box listens: what a start makes stays, and looking for rubbish in it takes an eighth of it

    from appliance.domain.errors import InUse
    from appliance.server import serve as run

    unix_socket = settings.http.unix_socket

    try:
        run(settings, on_listen=lambda url: _greet(url, unix_socket, settings.state_dir))
    except InUse as error:
        if unix_socket is not None and error.name == str(unix_socket):
            raise CommandFailed(f"{unix_socket} is taken; name another APPLIANCE_HTTP__UNIX_SOCKET") from error
        raise CommandFailed(f"a box runs on {settings.state_dir} already; stop it, or name another --state") from error
    except OSError as error:
        if unix_socket is None or error.filename is not None:
            raise
        raise CommandFailed(f"the Unix socket {unix_socket} cannot be made ({error})") from error
    finally:
        gc.enable()


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """What was named on the command line; the rest is left to the environment and the TOML file."""
    return {name: value for name, value in values.items() if value is not None}


def _settings(overrides: dict[str, Any]) -> Any:
    """The settings tree. Raises: SettingsUnfit, naming the first setting that does not fit."""
    from tomllib import TOMLDecodeError

    from pydantic import ValidationError

    from appliance.settings import Settings

    for variable in os.environ:  # those of no section are passed over
        section, nested, _ = variable.lower().removeprefix("appliance_").partition("__")
        if nested and variable.lower().startswith("appliance_") and section not in Settings.model_fields:
            raise SettingsUnfit(f"there is no setting {section} ({variable}); docs/operations.md has all of them")
    try:
        settings = Settings(**_given(overrides))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise SettingsUnfit(f"there is no setting {place}; docs/operations.md has all of them") from error
        raise SettingsUnfit(f"setting {place}: {first['msg']}; see docs/operations.md for all settings") from error
    except (TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsUnfit(f"{os.environ['APPLIANCE_CONFIG']} is no TOML file: {error}") from error
    # Children work in folders of their own, where a relative path would mean something else.
    return settings.model_copy(update={"state_dir": settings.state_dir.absolute()})


def _require_free(host: str, port: int) -> None:
    """Raises: CommandFailed when nobody could listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = "is taken by another program; name another with --port (0: any free one)"
            else:
                reason = f"cannot be listened on ({error.strerror}); see --host and --port"
            raise CommandFailed(f"port {port} of {host} {reason}") from error


def _require_folder(path: Path) -> None:
    """Make the state folder where it is missing. Raises: CommandFailed when it cannot be made or written."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        reason = f"the state folder {path} cannot be used ({error.strerror}); name another with --state"
        raise CommandFailed(reason) from error


def _greet(url: str, unix_socket: Path | None, state_dir: Path) -> None:
    places = url if unix_socket is None else f"{url} and at the Unix socket {unix_socket}"
    screen.say(f"The box listens at {places}   API and docs: {url}/docs   admin key: {state_dir / 'admin.key'}")
