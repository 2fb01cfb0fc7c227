"""`/v2` in the OpenAPI document.

Its routes are a bare handler that the framework does not see, so they are described by hand.
"""

from typing import Any

_NAME = {
    "name": "model",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "Name of the application.",
    "example": "door",
}
_VERSION = {
    "name": "version",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "A variant, by number or by name.",
    "example": "2",
}
_REGION = {
    "name": "region",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "maxLength": 255},
    "description": "Name of a shared memory region, the tenant's own.",
    "example": "frames",
}
_KEY: list[dict[str, list[str]]] = [{"key": []}]
_INFER = {
    "id": "42",
    "parameters": {"timeout": 100000, "priority": 1},
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 3.0]}],
    "outputs": [{"name": "y"}],
}
_INFERRED = {
    "model_name": "door",
    "model_version": "2",
    "parameters": {"variant": "int8", "evidence": "samples"},
    "id": "42",
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0.1, 0.9]}],
}
_METADATA = {
    "name": "door",
    "versions": ["1", "2"],
    "variants": {"1": "fp32", "2": "int8"},
    "platform": "onnxruntime_onnx",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
_CONFIG = {
    "name": "door",
    "platform": "onnxruntime_onnx",
    "backend": "onnxruntime",
    "max_batch_size": 8,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [3]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [2]}],
}
_INDEX = [{"name": "door", "version": "2", "variant": "int8", "state": "READY", "reason": ""}]
_REGISTERED = {"key": "/frames", "offset": 0, "byte_size": 602112}
_REGIONS = [{"name": "frames", **_REGISTERED}]
_DURATION = {"count": 1520, "ns": 6080000000}
_STATISTICS = {
    "model_stats": [
        {
            "name": "door",
            "version": "2",
            "variant": "int8",
            "inference_count": 1520,
            "execution_count": 1520,
            "inference_stats": {"success": _DURATION, "compute_infer": _DURATION},
        }
    ]
}


def _json(example: Any, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"example": example}}}


def _errors(*statuses: int) -> dict[str, Any]:
    texts = {
        400: (
            "A tensor does not fit, the model cannot compute its values, or the model is unloaded",
            "input 'x' has shape [1, 4], the variant takes [-1, 3] (-1 = any)",
        ),
        401: ("A key is needed", "send a key: 'Authorization: Bearer KEY'"),
        403: ("The key may not do this", "this key may not load or unload models"),
        404: ("No such model or version", "there is no application 'door'"),
        413: ("The body is too large", "the body is larger than the limit of 67108864 bytes"),
        415: (
            "The body is packed in a way that is not read",
            "a body of Content-Encoding 'br' is not read; send it as it is, or as gzip or deflate",
        ),
        429: ("A quota or queue is full; see Retry-After", "256 requests of 'harbour/door' are waiting already"),
        500: ("The run broke off", "the model's process ended during this run; the model is loaded again ..."),
        503: ("No memory, or shutting down; see Retry-After", "the box is shutting down"),
        504: ("The deadline passed", "the deadline passed after 100.2 ms of waiting"),
        507: ("It can never fit into memory", "no room in memory, ever: at the least int8 needs 104.9 MB"),
    }
    return {str(status): _json({"error": texts[status][1]}, texts[status][0]) for status in statuses}


_KEYED = (400, 401, 403, 404, 429)


def _operation(
    summary: str, description: str, ok: dict[str, Any], errors: tuple[int, ...] = (), *, keyed: bool = True
) -> dict[str, Any]:
    """`errors` beside those of every call with a key: it may be wrong, not the one to act for a tenant with, or one of
    too many wrong ones, and what it names may be unreadable, unloaded or not there.
    """
    operation: dict[str, Any] = {
        "tags": ["v2"],
        "summary": summary,
        "description": description,
        "responses": {"200": ok, **_errors(*sorted({*errors, *(_KEYED if keyed else ())}))},
    }
    return operation | {"security": _KEY} if keyed else operation


_INFER_OPERATION = _operation(
    "Infer",
    "Tensors in, tensors out, as JSON or binary (`Inference-Header-Content-Length`), as they are or packed "
    "(`Content-Encoding`: gzip or deflate). `parameters.timeout` is in "
    "microseconds, "
    "`parameters.priority` 1 is the most urgent; `sequence_id`, `sequence_start` and `sequence_end` carry stateful "
    "models. With `shared_memory_region`, `shared_memory_byte_size` and `shared_memory_offset` in the parameters of an "
    "input or output it is in shared memory.",
    _json(
        _INFERRED,
        "The outputs; `model_version` and `parameters.variant` are number and name of the variant that answered, "
        "`parameters.evidence` says on which inputs it was measured, and `parameters.warnings` why it may be wrong.",
    ),
    (413, 415, 500, 503, 504, 507),
) | {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"example": _INFER},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_METADATA_OPERATION = _operation(
    "Model metadata",
    "Inputs and outputs; versions are the numbers of the variants, `variants` has their names.",
    _json(_METADATA, "The model."),
)
_CONFIG_OPERATION = _operation(
    "Model configuration",
    "`max_batch_size` is the largest batch that was measured, and `dims` leave the batch axis out. "
    "0 where not every tensor has a free first axis: then `dims` are the whole shapes.",
    _json(_CONFIG, "The model, in the words of the model configuration extension."),
)
_READY_OPERATION = _operation(
    "Is a model ready",
    "Ready means servable: a cold load counts.",
    _json({"name": "door", "ready": True}, "It is."),
)
_STATISTICS_OPERATION = _operation(
    "Statistics of a model", "Counts and durations since the start.", _json(_STATISTICS, "By variant.")
)
_LOAD = (413, 415, 500, 503, 507)
_STATUS_OPERATION = _operation(
    "Shared memory regions",
    "Those of the tenant. 404 where the box takes no tensors in shared memory.",
    _json(_REGIONS, "The regions."),
)
_UNREGISTER_OPERATION = _operation(
    "Unregister shared memory",
    "Requests under way still use it. One that is not there is no error.",
    _json({}, "Unregistered."),
    (413, 415, 503),
)
_REGISTER_OPERATION = _operation(
    "Register shared memory",
    "A part of a POSIX shared memory object, over a connection from the box itself. The object belongs to the user who "
    "runs the caller's process, and to no other tenant's region.",
    _json({}, "Registered."),
    (413, 415, 503),
) | {"requestBody": {"required": True, "content": {"application/json": {"example": _REGISTERED}}}}

V2_PATHS: dict[str, Any] = {
    "/v2": {
        "get": _operation(
            "Server metadata",
            "Name, version, extensions.",
            _json({"name": "edge-appliance", "version": "0.1.0", "extensions": ["binary_tensor_data"]}, "The server."),
            (),
            keyed=False,
        )
    },
    "/v2/health/live": {
        "get": _operation("Is it alive", "The process answers.", _json({"live": True}, "Alive."), (), keyed=False)
    },
    "/v2/health/ready": {
        "get": _operation(
            "Is it ready", "200 when the box serves.", _json({"ready": True}, "Ready."), (503,), keyed=False
        )
    },
    "/v2/models/{model}": {"parameters": [_NAME], "get": _METADATA_OPERATION},
    "/v2/models/{model}/versions/{version}": {"parameters": [_NAME, _VERSION], "get": _METADATA_OPERATION},
    "/v2/models/{model}/config": {"parameters": [_NAME], "get": _CONFIG_OPERATION},
    "/v2/models/{model}/versions/{version}/config": {"parameters": [_NAME, _VERSION], "get": _CONFIG_OPERATION},
    "/v2/models/{model}/ready": {"parameters": [_NAME], "get": _READY_OPERATION},
    "/v2/models/{model}/versions/{version}/ready": {"parameters": [_NAME, _VERSION], "get": _READY_OPERATION},
    "/v2/models/{model}/infer": {"parameters": [_NAME], "post": _INFER_OPERATION},
    "/v2/models/{model}/versions/{version}/infer": {"parameters": [_NAME, _VERSION], "post": _INFER_OPERATION},
    "/v2/models/{model}/stats": {"parameters": [_NAME], "get": _STATISTICS_OPERATION},
    "/v2/models/{model}/versions/{version}/stats": {"parameters": [_NAME, _VERSION], "get": _STATISTICS_OPERATION},
    "/v2/models/stats": {
        "get": _operation(
            "Statistics of all models",
            "Of those this key can call.",
            _json(_STATISTICS, "By model and variant."),
        )
    },
    "/v2/systemsharedmemory/status": {"get": _STATUS_OPERATION},
    "/v2/systemsharedmemory/unregister": {"post": _UNREGISTER_OPERATION},
    "/v2/systemsharedmemory/region/{region}/status": {"parameters": [_REGION], "get": _STATUS_OPERATION},
    "/v2/systemsharedmemory/region/{region}/register": {"parameters": [_REGION], "post": _REGISTER_OPERATION},
    "/v2/systemsharedmemory/region/{region}/unregister": {"parameters": [_REGION], "post": _UNREGISTER_OPERATION},
    "/v2/repository/index": {
        "post": _operation(
            "List models",
            "READY is servable, UNAVAILABLE unloaded or still importing.",
            _json(_INDEX, "By application and variant."),
            (413, 415),
        )
    },
    "/v2/repository/models/{model}/load": {
        "parameters": [_NAME],
        "post": _operation(
            "Load a model", "Makes it resident, and available after an unload.", _json({}, "Loaded."), _LOAD
        ),
    },
    "/v2/repository/models/{model}/unload": {
        "parameters": [_NAME],
        "post": _operation(
            "Unload a model",
            "Waits for running requests; infer answers 400 until it is loaded.",
            _json({}, "Unloaded."),
            _LOAD,
        ),
    },
}
