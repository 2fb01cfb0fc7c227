"""What the OpenAPI document says of errors: for each class a route names, its status, its type and a worked example."""

import json
from typing import Any

from appliance.api.http.problems import CONTENT_TYPE, OTHERS, plain_problem, problem_response
from appliance.domain import errors as e

EXAMPLES: tuple[e.ApplianceError, ...] = (
    e.UnknownTenant(name="harbour"),
    e.UnknownModel(name="centerface"),
    e.UnknownApplication(name="door"),
    e.UnknownVariant(name="int8"),
    e.UnknownJob(name="01hf3k2m9x"),
    e.UnknownUpload(name="5f1c0a9be2d4"),
    e.UnknownRequest(name="0f8fad5bd9cb469fa16570867728950e"),
    e.UnknownSession(name="5f0c2a9be1d04377"),
    e.UnknownKey(name="5f1c0a9be2d4"),
    e.UnknownReceiver(name="7c2e91a04bd8"),
    e.UnknownSimulation(name="9f8a3c5be01d4f7a"),
    e.UnknownDecision(name="4711"),
    e.UnknownBackup(name="nightly-20260101T033000Z.tar"),
    e.UnknownPipeline(name="signs"),
    e.UnknownClient(name="5f0c2a9be1d04377"),
    e.AlreadyExists(name="centerface"),
    e.InUse(name="harbour"),
    e.BoxNotEmpty(models=3, applications=4, tenants=1, keys=7),
    e.Overcommitted(name="harbour", guarantee_bytes=300_000_000, others_bytes=700_000_000, budget_bytes=900_000_000),
    e.IllegalState(name="5f1c0a9be2d4", state="incomplete: 1048576 of 209715200 bytes are here"),
    e.OffsetMismatch(name="5f1c0a9be2d4", expected_offset=1048576),
    e.ModelUnavailable(name="door"),
    e.PromiseNotPossible(
        name="gate",
        cause="link",
        offers=({"kind": "latency", "slo_ms": 180.0, "rate_rps": 15.0},),
        reason="no network meets the SLO of 1 over their link",
    ),
    e.NothingToSimulate(name="box"),
    e.FrameMismatch(name="17", reason="it came before with other bytes"),
    e.ApplicationInUse(name="find-text", pipelines=("signs",)),
    e.PipelineNotPossible(
        name="signs", fps=15.0, fps_possible=6.5, missing=("processor cpu",), reason="find takes 0.36 of 0.2 workers"
    ),
    e.BadInput(reason="the form is broken"),
    e.BadName(what="model", name="My Model"),
    e.BadTensor(reason="input 'input' has shape [1, 3], the variant takes [-1, 3, 224, 224] (-1 = any)"),
    e.BadMedia(reason="the picture ends in the middle"),
    e.BadMetadata(reason="task 'faces' is not known"),
    e.BadQuota(reason="300000000 bytes are more than the ceiling of 200000000: nothing above it can be guaranteed"),
    e.BadReceiver(reason="url: say http:// or https://, a host and a path, without spaces"),
    e.BadSeries(series="p99:harbour/gate"),
    e.BadPeriod(field="from", reason="from: it is not before `to`"),
    e.BadEdit(edit="edits[1].name", reason="'fifo' is not one of: lru, none"),
    e.SloNotKept(
        reason="no variant keeps 3 ms: the fastest, int8, takes 5 ms (P99), so requests without a timeout of their own "
        "will get 504; 10 ms or a smaller model would do",
        variant="int8",
        p99_ms=5.0,
        latency_slo_ms=3.0,
    ),
    e.PipelineCycle(key="stages[1].after", stages=("lines", "read")),
    e.UnknownStage(key="stages[1].after", stage="fnid"),
    e.StageMismatch(
        key="stages[1].of", stage="lines", reason="there is no list 'objects': 'find' answers with 'regions'"
    ),
    e.TooManyStages(key="stages", count=17, most=16, what="stages"),
    e.SloTooSmall(latency_slo_ms=30.0, needs_ms=34.0, path=("find 24", "read 10")),
    e.TooLarge(what="the body", limit_bytes=67108864),
    e.BadEncoding(reason="a body of Content-Encoding 'br' is not read; send it as it is, or as gzip or deflate"),
    e.MissingKey(),
    e.WrongKey(),
    e.Forbidden(action="manage the box; it may only call applications"),
    e.ForeignOrigin(reason="the request comes from a page of 'https://example.org'"),
    e.TlsRequired(),
    e.QuotaExceeded(tenant="harbour", quota="requests per second", limit=5, left=0.8, retry_after_s=0.4),
    e.QueueFull(application_id="harbour/door", queue_len_max=256, waiting=256),
    e.Overloaded(application_id="harbour/door", expected_ms=940.0, allowed_ms=450.0, retry_after_s=0.5),
    e.TooManyDeferred(tenant="harbour", requests_max=1000, retry_after_s=17.0),
    e.TooManyFailedKeys(retry_after_s=41.0),
    e.TooManyTests(retry_after_s=5.0),
    e.CreditExceeded(credit=2, frame=17),
    e.TooManySessions(tenant="harbour", sessions_max=256, retry_after_s=60.0),
    e.TooManySimulations(simulations_max=4, retry_after_s=30.0),
    e.Busy(),
    e.OutOfMemory(
        build_id="9f8a@cpu",
        need_bytes=41200000,
        budget_bytes=67108864,
        variant="int8",
        free_bytes=11300000,
        blockers=[
            {"application": "harbour/door", "mb": 30.5, "why": "in its window", "until_s": 3.2},
            {"application": None, "mb": 25.3, "why": "pinned", "until_s": None},
        ],
        retry_after_s=3.2,
    ),
    e.CeilingReached(
        build_id="9f8a@cpu",
        need_bytes=104857600,
        budget_bytes=1073741824,
        tenant="harbour",
        held_bytes=188743680,
        ceiling_bytes=268435456,
    ),
    e.LoadFailed(build_id="9f8a@cpu", reason="it needs more memory than it may have"),
    e.ContentDamaged(build_id="harbour/door:fp32", reason="its content on disk is damaged"),
    e.VariantQuarantined(
        name="int8",
        reason="its process ended 3 times within 10 minutes, the last time: Floating point exception",
    ),
    e.OutOfFiles(),
    e.ProcessorEmulated(),
    e.NotConfined(missing="Landlock"),
    e.ShuttingDown(),
    e.StorageFull(free_bytes=70254592, need_bytes=4000000, reserve_bytes=67108864),
    e.StorageBusy(),
    e.StorageFailed(reason="attempt to write a readonly database"),
    e.DeadlineExceeded(waited_ms=100.2, expected_ms=24.0, decoded_ms=12.5),
    e.FrameDropped(frame=17, cause="hopeless", left_ms=40.0, expected_ms=62.0),
    e.RunFailed(variant_id="harbour/centerface:int8", reason="the processor broke off"),
    e.RunRefused(variant_id="harbour/centerface:int8", reason="indices element out of data bounds, idx=128"),
)
CAN_NEVER = e.OutOfMemory(
    build_id="9f8a@cpu", need_bytes=104857600, budget_bytes=67108864, variant="int8", can_fit=False, retry_after_s=None
)
_BY_CLASS = {type(example): example for example in EXAMPLES}
_ALWAYS: tuple[type[e.ApplianceError], ...] = (
    e.MissingKey,
    e.WrongKey,
    e.Forbidden,
    e.UnknownTenant,
    e.TooManyFailedKeys,
    e.TooLarge,
    e.BadEncoding,
    e.Busy,
    e.StorageBusy,
    e.StorageFailed,
)
"""A key may be wrong, or not the one to act for a tenant with; a body may be large, or packed; a database may be out of
reach.
"""


def problems(*classes: type[e.ApplianceError], keyless: bool = False, validated: bool = True) -> dict[int | str, Any]:
    """The `responses` of a route that may raise these, beside what any route with a key may raise."""
    responses: dict[int | str, Any] = {}
    for error in dict.fromkeys((*(() if keyless else _ALWAYS), *classes)):
        _add(responses, error.status, error.slug, error.title, _example(error))
    if e.OutOfMemory in classes:
        never = json.loads(problem_response(CAN_NEVER, "/v1/models")[2])
        _add(responses, CAN_NEVER.never[0], CAN_NEVER.slug, CAN_NEVER.never[1], never)
    if validated:
        status, body = plain_problem("invalid-request", "limit: should be at least 1", "/v1/models")
        _add(responses, status, "invalid-request", "A field is missing or wrong", json.loads(body))
    return responses


def plain_problems(slug: str, detail: str) -> dict[int | str, Any]:
    """The `responses` entry of what the domain does not know."""
    responses: dict[int | str, Any] = {}
    status, body = plain_problem(slug, detail, "/v1/models")
    _add(responses, status, slug, OTHERS[slug].title, json.loads(body))
    return responses


def _example(error: type[e.ApplianceError]) -> dict[str, Any]:
    example: dict[str, Any] = json.loads(problem_response(_BY_CLASS[error], "/v1/models")[2])
    return example


def _add(responses: dict[int | str, Any], status: int, slug: str, title: str, example: dict[str, Any]) -> None:
    response = responses.setdefault(status, {"description": "", "content": {CONTENT_TYPE: {"examples": {}}}})
    response["description"] = ". ".join(filter(None, (response["description"], title)))
    response["content"][CONTENT_TYPE]["examples"][slug] = {"summary": title, "value": example}
    response["content"][CONTENT_TYPE]["schema"] = {"$ref": "#/components/schemas/Problem"}


def example(value: Any, description: str = "", media_type: str = "application/json") -> dict[str, Any]:
    """A success response with a worked example."""
    return {"description": description, "content": {media_type: {"example": value}}}
