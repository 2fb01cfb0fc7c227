"""The one place where an error becomes an HTTP answer: RFC 9457 problem documents.

`TABLE` maps a class of `domain.errors` to a status and a title; a class without a row takes its parent's. Works for raw
ASGI too (`problem_response`, `status_of`), so that `/v2`, which has an error shape of its own, agrees on the status.
"""

import errno
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.api.http.packed_body import READ
from appliance.domain import errors as e
from appliance.domain.session import DropCause
from appliance.wire.paths import without_paths
from appliance.wire.problem import PROBLEMS_PATH, RESERVED, error_classes, slug_of

CONTENT_TYPE = "application/problem+json"
TEXT_MAX = 2000
RETRY_AFTER_S_MAX = 86_400
"""A day: with the smallest of rates the time until the next request has no end."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the class means over HTTP."""

    status: int
    title: str


TABLE: Mapping[type[e.ApplianceError], Row] = {
    e.ApplianceError: Row(500, "The appliance could not do this"),
    e.NotFound: Row(404, "Nothing of this name is visible with this key"),
    e.UnknownTenant: Row(404, "No such tenant"),
    e.UnknownModel: Row(404, "No such model"),
    e.UnknownApplication: Row(404, "No such application"),
    e.UnknownVariant: Row(404, "No such variant"),
    e.UnknownJob: Row(404, "No such job"),
    e.UnknownUpload: Row(404, "No such upload"),
    e.UnknownRequest: Row(404, "No such request"),
    e.UnknownSession: Row(404, "No such session"),
    e.UnknownSimulation: Row(404, "No such simulation"),
    e.UnknownKey: Row(404, "No such key"),
    e.UnknownDecision: Row(404, "No such decision"),
    e.UnknownBackup: Row(404, "No such backup"),
    e.UnknownRegion: Row(404, "No such shared memory region"),
    e.SharedMemoryOff: Row(404, "Shared memory is off"),
    e.UnknownPipeline: Row(404, "No such pipeline"),
    e.UnknownClient: Row(404, "No such client of the pipeline"),
    e.Conflict: Row(409, "Not possible in the present state"),
    e.AlreadyExists: Row(409, "The name is taken"),
    e.InUse: Row(409, "In use"),
    e.BoxNotEmpty: Row(409, "The box is not empty"),
    e.Overcommitted: Row(409, "More memory would be guaranteed than there is"),
    e.IllegalState: Row(409, "Not possible in the present state"),
    e.OffsetMismatch: Row(409, "The upload goes on at another offset"),
    e.ModelUnavailable: Row(409, "The model is not available"),
    e.PromiseNotPossible: Row(409, "The promise cannot be kept"),
    e.NothingToSimulate: Row(409, "There is nothing to simulate"),
    e.FrameMismatch: Row(409, "The frame does not fit the session"),
    e.ApplicationInUse: Row(409, "Pipelines use the application"),
    e.PipelineNotPossible: Row(409, "The pipeline's SLO cannot be held"),
    e.BadInput: Row(422, "The input cannot be used"),
    e.BadName: Row(422, "Not a legal name"),
    e.BadTensor: Row(422, "A tensor does not fit the model"),
    e.BadRegion: Row(422, "The shared memory cannot be used"),
    e.BadMedia: Row(422, "The picture, sound or text cannot be decoded"),
    e.BadMetadata: Row(422, "The metadata does not fit"),
    e.BadQuota: Row(422, "The quota contradicts itself"),
    e.BadModel: Row(422, "The model is refused"),
    e.BadArchive: Row(422, "The archive is refused"),
    e.BadSeries: Row(422, "There is no such series"),
    e.BadPeriod: Row(422, "The times contradict one another"),
    e.BadEdit: Row(422, "An edit cannot be made"),
    e.BadEncoding: Row(415, "The body is packed in a way that is not read"),
    e.SloNotKept: Row(422, "No variant keeps the SLO"),
    e.BadPipeline: Row(422, "The pipeline cannot be run"),
    e.PipelineCycle: Row(422, "Stages wait for one another"),
    e.UnknownStage: Row(422, "A stage waits for one that is not there"),
    e.StageMismatch: Row(422, "A stage cannot take what comes before it"),
    e.TooManyStages: Row(422, "Too many stages, or items"),
    e.SloTooSmall: Row(422, "The SLO is below what the fastest variants need"),
    e.TooLarge: Row(413, "Larger than the limit"),
    e.NotAllowed: Row(403, "Not allowed"),
    e.MissingKey: Row(401, "A key is needed"),
    e.WrongKey: Row(401, "The key does not open anything"),
    e.Forbidden: Row(403, "The key may not do this"),
    e.NotOnBox: Row(403, "Only from the box itself"),
    e.ForeignOrigin: Row(403, "Only for the box's own pages"),
    e.TlsRequired: Row(403, "Signing in needs TLS"),
    e.LimitReached: Row(429, "A limit is reached"),
    e.QuotaExceeded: Row(429, "The tenant's quota is used up"),
    e.QueueFull: Row(429, "Too many requests wait"),
    e.Overloaded: Row(429, "Too much work waits"),
    e.TooManyDeferred: Row(429, "Too many requests are answered later"),
    e.TooManyFailedKeys: Row(429, "Too many wrong keys"),
    e.TooManyConnections: Row(429, "Too many connections"),
    e.TooManySimulations: Row(429, "Too many simulations"),
    e.CreditExceeded: Row(429, "Too many frames are on their way"),
    e.TooManySessions: Row(429, "Too many sessions"),
    e.Unavailable: Row(503, "Not possible now"),
    e.Busy: Row(503, "The box is busy"),
    e.ResultNotKept: Row(503, "No room to keep the result"),
    e.OutOfMemory: Row(503, "No room in memory"),
    e.CeilingReached: Row(503, "The tenant may take no more memory"),
    e.LoadFailed: Row(503, "The model could not be loaded"),
    e.ContentDamaged: Row(503, "A file of the model is damaged"),
    e.ProcessorLost: Row(503, "A processor is lost"),
    e.VariantQuarantined: Row(503, "The variant is quarantined"),
    e.OutOfFiles: Row(503, "Too many files are open"),
    e.ProcessorEmulated: Row(503, "Imports are refused"),
    e.NotConfined: Row(503, "Imports are refused"),
    e.ShuttingDown: Row(503, "The box is shutting down"),
    e.StorageFull: Row(507, "The disk is full"),
    e.StorageBusy: Row(503, "The database is held by another program"),
    e.StorageFailed: Row(503, "The state folder cannot be used"),
    e.DeadlineExceeded: Row(504, "The deadline passed"),
    e.FrameDropped: Row(504, "The frame was not run"),
    e.RunFailed: Row(500, "The run failed"),
    e.RunRefused: Row(422, "The model failed on this input"),
    e.RunCrashed: Row(500, "The model's process ended"),
    e.RunStopped: Row(504, "The run took too long"),
}


OVER_RATE = Row(429, "More frames than were promised")
"""Of a `FrameDropped` that nobody planned; the type is the same."""
CAN_NEVER_FIT = Row(507, "It can never fit into memory")
"""Of an `OutOfMemory` that no waiting helps; the type is the same."""


_ROWS: dict[type[e.ApplianceError], Row] = {}
"""Found so far."""


def row_of(error: type[e.ApplianceError]) -> Row:
    """The row of the class or of its nearest ancestor."""
    row = _ROWS.get(error)
    if row is None:
        row = _ROWS[error] = next(TABLE[parent] for parent in error.__mro__ if parent in TABLE)
    return row


def status_of(exc: BaseException) -> int:
    """HTTP status of any exception; 500 for what is not ours."""
    return _row_for(exc).status if isinstance(exc, e.ApplianceError) else 500


def _row_for(error: e.ApplianceError) -> Row:
    """Its class's row, unless what happened to this one has another."""
    if isinstance(error, e.OutOfMemory) and not error.can_fit:
        return CAN_NEVER_FIT
    if isinstance(error, e.FrameDropped) and error.cause == DropCause.OVER_RATE:
        return OVER_RATE
    return row_of(type(error))


def headers_of(exc: BaseException) -> dict[str, str]:
    """Headers that belong to the error whatever the shape of its body: Retry-After, WWW-Authenticate, what is read."""
    headers = {}
    retry_after_s = getattr(exc, "retry_after_s", None)
    if retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(min(retry_after_s, RETRY_AFTER_S_MAX))))
    if status_of(exc) == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(exc, e.BadEncoding):
        headers["Accept-Encoding"] = ", ".join(READ)
    return headers


def document(slug: str, row: Row, detail: str, instance: str, facts: Mapping[str, object] | None = None) -> bytes:
    """A problem document as JSON bytes; facts that JSON does not know are written as text."""
    members: dict[str, object] = {"type": PROBLEMS_PATH + slug, "title": row.title, "status": row.status}
    members |= {"detail": told(detail)}
    if instance:
        members["instance"] = instance
    members.update((name, told(value)) for name, value in (facts or {}).items() if name not in RESERVED)
    return json.dumps(members, default=str, ensure_ascii=False).encode("utf-8", "replace")


def told(value: object) -> object:
    """Text of an error as callers read it: without paths of the machine, and, as it may quote what the caller sent, of
    a length that a person reads; anything else as it is.
    """
    return without_paths(value[:TEXT_MAX]) if isinstance(value, str) else value


def problem_response(exc: BaseException, instance: str = "") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an error; one that is not ours tells nothing of the inside."""
    if isinstance(exc, OSError) and exc.errno in (errno.EMFILE, errno.ENFILE):
        exc = e.OutOfFiles()
    if isinstance(exc, e.ApplianceError):
        row = _row_for(exc)
        body = document(slug_of(type(exc)), row, str(exc), instance, exc.facts())
        return row.status, {"Content-Type": CONTENT_TYPE, **headers_of(exc)}, body
    detail = "something went wrong inside the box; its log has the details under this request id"
    return 500, {"Content-Type": CONTENT_TYPE}, plain_problem("internal-error", detail, instance)[1]


OTHERS: Mapping[str, Row] = {
    "no-such-path": Row(404, "No such path"),
    "method-not-allowed": Row(405, "Not with this method"),
    "bad-request": Row(400, "The request cannot be read"),
    "invalid-request": Row(422, "A field is missing or wrong"),
    "request-timeout": Row(408, "The request came too slowly"),
    "expectation-failed": Row(417, "What the request expects cannot be met"),
    "upgrade-required": Row(426, "Only as a WebSocket"),
    "head-too-large": Row(431, "The head of the request is too large"),
    "internal-error": Row(500, "Internal error"),
    "not-implemented": Row(501, "The transfer coding is not read"),
}
"""Problems of HTTP itself, which the domain does not know."""


def plain_problem(
    slug: str, detail: str, instance: str, facts: Mapping[str, object] | None = None
) -> tuple[int, bytes]:
    """Status and body of one of `OTHERS`."""
    return OTHERS[slug].status, document(slug, OTHERS[slug], detail, instance, facts)


def all_problems() -> dict[str, Row]:
    """Every slug that can stand in a `type`, with its row; for the pages under `/problems/`."""
    return {slug_of(error): row_of(error) for error in error_classes()} | dict(OTHERS)
