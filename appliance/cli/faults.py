"""What went wrong, in one sentence that says what to do."""

import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from appliance.domain.errors import ApplianceError, MissingKey, WrongKey
from appliance.terminal.failure import CommandFailed


@contextmanager
def well_written(file: Path) -> Iterator[None]:
    """Where a written scenario is read and run: what is wrong with it is one line, and status 2."""
    from appliance.lab.problems.base import Malformed

    try:
        yield
        return
    except Malformed as error:
        sentence = str(error)
    except OSError as error:
        sentence = f"{file}: cannot be read: {error.strerror}"
    print(sentence, file=sys.stderr)
    raise typer.Exit(2)


NO_ANSWER = 75
"""`EX_TEMPFAIL` of sysexits.h: the box did not answer in time, and may another time."""


def status_of(error: BaseException) -> int:
    """The exit status of a command that ended so."""
    if isinstance(error, CommandFailed):
        return error.status
    return NO_ANSWER if _is_time_out(error) else 1


def _is_time_out(error: BaseException) -> bool:
    """Whether something took the connection, and then said nothing."""
    import httpx

    return isinstance(error, TimeoutError | httpx.ReadTimeout | httpx.WriteTimeout)


def sentence_of(error: BaseException) -> str | None:
    """The sentence for an error that a person may meet; None for our own mistakes, which deserve a traceback."""
    match error:
        case MissingKey() | WrongKey():
            return f"{error}; give one with --key or APPLIANCE_KEY, or --state DIR of a box on this machine"
        case CommandFailed() | ApplianceError():
            return str(error)
        case FileNotFoundError():
            return f"there is no file {error.filename!r}"
        case PermissionError():
            return f"{error.filename!r} cannot be opened by this user"
        case OSError() if error.filename:
            return f"{error.filename!r}: {error.strerror}"
    return _connection_sentence(error)


def _connection_sentence(error: BaseException) -> str | None:
    from http.client import HTTPException
    from urllib.error import URLError

    import httpx

    from appliance.client import UnexpectedAnswer
    from appliance.client.errors import NoAnswer
    from appliance.client.trust import UnknownBox

    if isinstance(error, UnknownBox):
        return f"{error.args[0]}; compare it with what the installer of the box has said"
    if isinstance(error, UnexpectedAnswer):
        return f"something else than a box seems to answer there ({error}); check --url"
    if _is_time_out(error):
        said = str(error) if isinstance(error, NoAnswer) else f"the box at {_url_of(error)} did not answer in time"
        return f"{said}; it may be busy, or have hung: try again, and look into its log"
    if isinstance(error, URLError):  # of a device's session
        return f"no box answers there ({error.reason}); start one with 'appliance serve', or name another with --url"
    if not isinstance(error, httpx.TransportError | ConnectionError | HTTPException):
        return None
    url = _url_of(error)
    if isinstance(error.__cause__, ssl.SSLError) or "CERTIFICATE" in str(error):
        return (
            f"the certificate of {url} is not trusted here; name its authority with --ca FILE, or by its --fingerprint"
        )
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"no box answers at {url}; start one with 'appliance serve', or name another with --url"
    return f"the connection to {url} broke ({str(error) or type(error).__name__}); try again"


def _url_of(error: object) -> str:
    """Scheme, host and port of the request that failed."""
    try:
        url = error.request.url  # type: ignore[attr-defined]
    except (RuntimeError, AttributeError):
        return "that address"
    return f"{url.scheme}://{url.netloc.decode()}"
