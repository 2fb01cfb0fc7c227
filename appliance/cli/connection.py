"""The running box that a command talks to: found from options, environment and the state folder of this machine.

`@connected` gives a command the options that all share, and hands it a `Connection` in their place. A command ends with
what it has to say: `box.tell` for one thing, `box.table` for a list; both print JSON instead where that was asked for.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

import typer

from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_STATE = Path("state")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PANEL = "Box and key"

P = ParamSpec("P")
One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class Connection:
    """A box and a key for it; `client()` opens it."""

    url: str
    key: str | None
    tenant: str | None
    ca: Path | None
    state: Path
    """State folder of the box, should it run on this machine."""
    as_json: bool = False
    """Whether the command shall answer with JSON."""
    fingerprint: str | None = None
    """Of the authority behind the certificate, where there is no file of it."""

    def tell(self, value: object, told: str | Iterable[str]) -> None:
        """Print what a person is told of a value, a text or lines; the value as JSON where that was asked for."""
        if self.as_json:
            screen.show_json(value)
            return
        for line in (told,) if isinstance(told, str) else told:
            print(line)

    def table(
        self,
        values: Iterable[One],
        columns: Sequence[str],
        row: Callable[[One], Sequence[object]],
        empty: str | tuple[str, str],
    ) -> None:
        """Print a row for each value, or all of them as JSON.

        `empty`: what is said where there is none, or the noun and the hint of `nothing`.
        """
        found = list(values)
        if self.as_json:
            screen.show_json(found)
            return
        nothing = empty if isinstance(empty, str) else partial(self.nothing, *empty)
        screen.show_table(columns, map(row, found), nothing)

    def nothing(self, noun: str, hint: str) -> str:
        """Return what is said where a list is empty: which tenant has none, and to an admin how much the box has."""
        from appliance.domain.errors import Forbidden

        try:
            with self.client() as client:
                now = client.system()
        except Forbidden:  # a device's key
            return f"There is no {noun} that this key may use."
        said = f"The tenant {now.tenant} has no {noun} yet; {hint}"
        if not now.models_of_all:
            return said
        models = screen.count(now.models_of_all, "model")
        return f"{said}\nAll tenants together have {models}: --tenant NAME shows another tenant's."

    def client(self) -> "Client":
        """A client to be used in a `with` block. Nothing is sent yet; with a fingerprint the box is asked for its
        authority.
        """
        from appliance.client import Client

        return Client(self.url, self.key, tenant=self.tenant, ca=self.ca, fingerprint=self.fingerprint)


def connected(command: Callable[Concatenate[Connection, P], None]) -> Callable[..., None]:
    """Put `--url`, `--key`, `--tenant`, `--state`, `--ca`, `--fingerprint` and
    `--json` in place of the command's first parameter.

    An option whose name the command itself takes (`tenant` as an argument) is left to it.
    """
    own = list(inspect.signature(command).parameters.values())[1:]
    taken = {parameter.name for parameter in own}
    shared = [parameter for parameter in _shared_parameters() if parameter.name not in taken]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        box = found(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        command(box, **given)  # type: ignore[call-arg]  # typer has filled in what the signature below asks for

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer asks for it
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def found(
    *,
    url: str | None,
    key: str | None,
    state: Path,
    ca: Path | None,
    as_json: bool,
    fingerprint: str | None = None,
    tenant: str | None = None,
) -> Connection:
    """Fill in what was not said: the address and the admin key that a box on this machine keeps in its state folder."""
    if ca is not None and fingerprint is not None:
        raise typer.BadParameter("a box is known by --ca or by --fingerprint, not by both")
    here = local_url(state)
    is_here = url is None or url.rstrip("/") == here or urlsplit(url).hostname in LOOPBACK
    if is_here and ca is None and fingerprint is None and (url or here or "").startswith("https"):
        ca = _existing(state / "tls" / "cert.pem")
    # The admin key of this machine's box is no business of another box.
    key = key or (_read(state / "admin.key") if is_here else None)
    return Connection((url or here or DEFAULT_URL).rstrip("/"), key, tenant, ca, state, as_json, fingerprint)


def local_url(state: Path) -> str | None:
    """Where the box of this state folder listens, as seen from this machine; None when it does not run."""
    url = _read(state / "address")
    return url and url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:  # not this machine's box, or not ours to read: then an option must say it
        return None


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None


def _shared_parameters() -> list[inspect.Parameter]:
    def option(
        name: str, kind: Any, default: Any, *flags: str, help: str, envvar: str | None = None
    ) -> inspect.Parameter:
        annotation = Annotated[kind, typer.Option(*flags, help=help, envvar=envvar, rich_help_panel=PANEL)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    return [
        option(
            "url",
            str | None,
            None,
            "--url",
            help=f"Address of the box \\[default: STATE/address, else {DEFAULT_URL}]",
            envvar="APPLIANCE_URL",
        ),
        option(
            "key",
            str | None,
            None,
            "--key",
            help="Key \\[default: STATE/admin.key, on the box itself]",
            envvar="APPLIANCE_KEY",
        ),
        option(
            "tenant",
            str | None,
            None,
            "--tenant",
            help="With an admin key: act in this tenant \\[default: default]",
            envvar="APPLIANCE_TENANT",
        ),
        option(
            "state",
            Path,
            DEFAULT_STATE,
            "--state",
            help="State folder of a box on this machine.",
            envvar="APPLIANCE_STATE_DIR",
        ),
        option("ca", Path | None, None, "--ca", help="PEM file of the authority behind the box's certificate."),
        option(
            "fingerprint",
            str | None,
            None,
            "--fingerprint",
            help="SHA-256 of that authority instead, as the installer, `appliance find` and QR codes tell it.",
            envvar="APPLIANCE_FINGERPRINT",
        ),
        option("as_json", bool, False, "--json", help="Answer with JSON."),
    ]
